#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tools/bench.h"

/* The largest size is far below what the one call of MPI_Allreduce can count. */
#define MOST_BYTES (4ULL << 30)

static const char *const known[] = {"-sizes", "-communicators", "-iters", "-json"};

enum { KNOWN = sizeof known / sizeof known[0], ITERATIONS_MOST = 100000 };

static int add_size(struct cmn_bench *b, const char *word)
{
    unsigned long long bytes;
    char *end;

    errno = 0;
    bytes = strtoull(word, &end, 10);
    if (end > word && *end && strchr("kKmMgG", *end)) {
        bytes = bytes > MOST_BYTES   ? bytes
                : strchr("kK", *end) ? bytes << 10
                : strchr("mM", *end) ? bytes << 20
                                     : bytes << 30;
        end++;
    }
    if (end == word || *end || errno || word[0] == '-') {
        return cmn_fail("-sizes: %s is no size: write bytes, or a number with K, M or G", word);
    }
    if (bytes < sizeof(float) || bytes > MOST_BYTES) {
        return cmn_fail("-sizes: %s: a size lies between 4 bytes and 4G", word);
    }
    if (b->sizes == CMN_BENCH_SIZES) {
        return cmn_fail("-sizes: more than %d sizes", CMN_BENCH_SIZES);
    }
    b->size[b->sizes++] = (size_t)bytes / sizeof(float);
    return 0;
}

static int add_name(struct cmn_bench *b, const char *word)
{
    const char *names[CMN_BENCH_ROWS] = {CMN_RAW, CMN_MEMORY};
    const struct cmn_communicator *c;
    const char *nearest;
    int n = 2;

    for (int i = 0; (c = cmn_communicator_at(i)) && n < CMN_BENCH_ROWS; i++) {
        names[n++] = c->name;
    }
    for (int i = 0; i < b->names; i++) {
        if (!strcmp(b->name[i], word)) {
            return cmn_fail("-communicators: %s stands there twice", word);
        }
    }
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], word)) {
            b->name[b->names++] = names[i];
            return 0;
        }
    }
    nearest = cmn_nearest(word, names, n);
    if (nearest) {
        return cmn_fail("-communicators: unknown communicator %s: did you mean %s?", word, nearest);
    }
    return cmn_fail("-communicators: unknown communicator %s: known are those of `darknet cmn "
                    "list`, %s and %s",
                    word, CMN_RAW, CMN_MEMORY);
}

/* Calls `add` for each of the words between commas. */
static int split(struct cmn_bench *b, const char *option, char *list,
                 int (*add)(struct cmn_bench *, const char *))
{
    char *word, *rest = list;

    while ((word = strsep(&rest, ","))) {
        if (!word[0]) {
            return cmn_fail("%s: there is nothing before or after a comma", option);
        }
        if (add(b, word)) {
            return -1;
        }
    }
    return 0;
}

static int take_iterations(struct cmn_bench *b, const char *value)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (end == value || *end || n < 1 || n > ITERATIONS_MOST) {
        return cmn_fail("-iters %s: the value must be a whole number, 1 to %d", value,
                        ITERATIONS_MOST);
    }
    b->iterations = (int)n;
    return 0;
}

static int unknown(const char *word)
{
    const char *nearest = cmn_nearest(word, known, KNOWN);

    if (nearest) {
        return cmn_fail("unknown argument %s: did you mean %s?", word, nearest);
    }
    return cmn_fail("unknown argument %s; known are: -sizes, -communicators, -iters, -json, "
                    "-cmn_KEY VALUE, -nogpu",
                    word);
}

/* Takes argv[0] and, where it has one, its value. Returns how many arguments those were, or -1. */
static int take(struct cmn_bench *b, int argc, char **argv)
{
    int which = 0;

    while (which < KNOWN && strcmp(known[which], argv[0])) {
        which++;
    }
    if (which == KNOWN) {
        return unknown(argv[0]);
    }
    if (which == 3) {
        b->json = 1;
        return 1;
    }
    if (argc < 2) {
        return cmn_fail("%s: the value is missing", argv[0]);
    }
    if (which == 2) {
        return take_iterations(b, argv[1]) ? -1 : 2;
    }
    if (which == 1) {
        b->named = 1;
    }
    return split(b, argv[0], argv[1], which ? add_name : add_size) ? -1 : 2;
}

static void set_defaults(struct cmn_bench *b)
{
    const struct cmn_communicator *c;

    if (b->sizes == 0) {
        for (size_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
            b->size[b->sizes++] = bytes / sizeof(float);
        }
    }
    if (b->named) {
        return;
    }
    b->name[b->names++] = CMN_RAW;
    for (int i = 0; (c = cmn_communicator_at(i)) && b->names < CMN_BENCH_ROWS - 1; i++) {
        b->name[b->names++] = c->name;
    }
    b->name[b->names++] = CMN_MEMORY;
}

int cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv)
{
    const char *one = b->session->options.communicator;

    if (strcmp(one, "auto")) {
        return cmn_fail(
            "darknet cmn bench: cmn_communicator=%s: it takes a list: -communicators %s", one, one);
    }
    for (int i = 1, used; i < argc; i += used) {
        used = take(b, argc - i, argv + i);
        if (used < 0) {
            return cmn_fail_in("darknet cmn bench");
        }
    }
    set_defaults(b);
    return 0;
}
