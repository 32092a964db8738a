/* `darknet cmn bench`: time and bandwidth of every communicator, of MPI_Allreduce and of memory.
 *
 * For each size, all candidates are verified once; then they take turns, iteration by iteration,
 * so that a slow moment of the machine affects all of them; then all are verified again. */
#include "tools/bench.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "tools/tool.h"

/* ---- the command line ---- */

/* MPI_Allreduce counts in an int; the largest size lies far below that. */
#define MOST_BYTES (4ULL << 30)

enum { ITERATIONS_MOST = 100000 };

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cmn_fatal("darknet cmn bench: %s", text);
}

static void add_size(struct cmn_bench *b, const char *word)
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
        refuse("-sizes: %s is no size: write bytes, or a number with K, M or G", word);
    }
    if (bytes < sizeof(float) || bytes > MOST_BYTES) {
        refuse("-sizes: %s: a size lies between 4 bytes and 4G", word);
    }
    if (b->sizes == CMN_BENCH_SIZES) {
        refuse("-sizes: more than %d sizes", CMN_BENCH_SIZES);
    }
    b->size[b->sizes++] = (size_t)bytes / sizeof(float);
}

static void add_name(struct cmn_bench *b, const char *word)
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
            refuse("-communicators: %s is named twice", word);
        }
    }
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], word)) {
            b->name[b->names++] = names[i];
            return;
        }
    }
    nearest = cmn_nearest(word, names, n);
    if (nearest) {
        refuse("-communicators: unknown communicator %s: did you mean %s?", word, nearest);
    }
    refuse("-communicators: unknown communicator %s: known are those of `darknet cmn list`, %s and "
           "%s",
           word, CMN_RAW, CMN_MEMORY);
}

/* Calls `add` for each of the words between commas. */
static void split(struct cmn_bench *b, const char *option, char *list,
                  void (*add)(struct cmn_bench *, const char *))
{
    char *word, *rest = list;

    while ((word = strsep(&rest, ","))) {
        if (!word[0]) {
            refuse("%s: there is nothing before or after a comma", option);
        }
        add(b, word);
    }
}

static int iterations_of(const char *value)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (end == value || *end || n < 1 || n > ITERATIONS_MOST) {
        refuse("-iters %s: the value must be a whole number, 1 to %d", value, ITERATIONS_MOST);
    }
    return (int)n;
}

__attribute__((noreturn)) static void unknown(const char *word)
{
    static const char *const known[] = {"-sizes", "-communicators", "-iters", "-json"};
    const char *nearest = cmn_nearest(word, known, sizeof known / sizeof known[0]);

    if (nearest) {
        refuse("unknown argument %s: did you mean %s?", word, nearest);
    }
    refuse("unknown argument %s; known are: -sizes, -communicators, -iters, -json, -cmn_KEY VALUE, "
           "-nogpu",
           word);
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

/* By hand: getopt_long_only() would take every abbreviation, and getopt_long() no single hyphen. */
void cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv)
{
    const char *one = b->session->options.communicator;

    if (strcmp(one, "auto")) {
        refuse("cmn_communicator=%s: it takes a list: -communicators %s", one, one);
    }
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (!strcmp(option, "-json")) {
            b->json = 1;
            continue;
        }
        if (strcmp(option, "-sizes") && strcmp(option, "-communicators") &&
            strcmp(option, "-iters")) {
            unknown(option);
        }
        if (++i == argc) {
            refuse("%s: the value is missing", option);
        }
        if (!strcmp(option, "-iters")) {
            b->iterations = iterations_of(argv[i]);
        } else if (!strcmp(option, "-sizes")) {
            split(b, option, argv[i], add_size);
        } else {
            b->named = 1;
            split(b, option, argv[i], add_name);
        }
    }
    set_defaults(b);
}

/* ---- what is printed: a table with nccl-tests' columns, or the same as JSON ---- */

struct row {
    const char *name;
    size_t floats;
    double seconds; /* of one exchange: median over the iterations of the slowest rank's time */
    int iterations;
    long wrong; /* floats on all ranks; -1: nothing is summed */
};

static double busbw_factor(const struct cmn_bench *b)
{
    double n = b->session->topology.size;

    return 2 * (n - 1) / n;
}

static double algbw(const struct row *row)
{
    return (double)row->floats * sizeof(float) / row->seconds / 1e9;
}

/* Only what moves all bytes has a bandwidth. */
static int has_bandwidth(const struct row *row)
{
    return row->wrong >= 0 || row->name[0] == '(';
}

static void print_heading(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;

    printf("# darknet-cmn %s, %d rank%s on %d node%s; sum of floats over all ranks, in place\n",
           CMN_VERSION, t->size, t->size > 1 ? "s" : "", t->inter_size,
           t->inter_size > 1 ? "s" : "");
    printf("#%11s %12s  %-16s %11s %8s %8s %8s\n", "size", "count", "communicator", "time", "algbw",
           "busbw", "#wrong");
    printf("#%11s %12s  %-16s %11s %8s %8s\n", "(B)", "(floats)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
}

static void print_row(const struct cmn_bench *b, const struct row *row)
{
    char alg[16] = "-", bus[16] = "-", wrong[32] = "-";

    if (has_bandwidth(row)) {
        snprintf(alg, sizeof alg, "%.2f", algbw(row));
        snprintf(bus, sizeof bus, "%.2f", algbw(row) * busbw_factor(b));
    }
    if (row->wrong >= 0) {
        snprintf(wrong, sizeof wrong, "%ld", row->wrong);
    }
    printf("%12zu %12zu  %-16s %11.1f %8s %8s %8s\n", row->floats * sizeof(float), row->floats,
           row->name, row->seconds * 1e6, alg, bus, wrong);
    fflush(stdout);
}

static void print_footing(void)
{
    printf("# time: median over the iterations of the slowest rank's; busbw = algbw * 2(n-1)/n\n");
    printf("# %s: sum in place, the limit of an exchange in shared memory: each rank "
           "reads its 1/n\n#   of n buffers of its own, adds, and writes the sum to all n, "
           "waiting for nobody\n",
           CMN_MEMORY);
}

static cJSON *json_document(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;
    cJSON *document = cJSON_CreateObject();

    cJSON_AddStringToObject(document, "version", CMN_VERSION);
    cJSON_AddStringToObject(document, "host", t->host);
    cJSON_AddNumberToObject(document, "ranks", t->size);
    cJSON_AddNumberToObject(document, "nodes", t->inter_size);
    cJSON_AddArrayToObject(document, "results");
    return document;
}

static void add_json_row(const struct cmn_bench *b, const struct row *row, cJSON *document)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddNumberToObject(o, "size", (double)(row->floats * sizeof(float)));
    cJSON_AddNumberToObject(o, "count", (double)row->floats);
    cJSON_AddStringToObject(o, "communicator", row->name);
    cJSON_AddNumberToObject(o, "time", row->seconds * 1e6);
    cJSON_AddNumberToObject(o, "iterations", row->iterations);
    if (has_bandwidth(row)) {
        cJSON_AddNumberToObject(o, "algbw", algbw(row));
        cJSON_AddNumberToObject(o, "busbw", algbw(row) * busbw_factor(b));
    }
    if (row->wrong >= 0) {
        cJSON_AddNumberToObject(o, "wrong", (double)row->wrong);
    }
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "results"), o);
}

static void print_json(cJSON *document)
{
    char *text = cJSON_Print(document);

    if (!text) {
        cmn_fatal("darknet cmn bench: out of memory");
    }
    printf("%s\n", text);
    free(text);
}

/* ---- the benchmark ---- */

/* Seconds that all timed iterations take together, unless -iters says how many there are. */
enum { TIME = 8, FEWEST = 3, MOST = 100 };

/* Exchanges of fewer bytes than this are timed several at a time. */
enum { SHORT = 64 << 10, REPEATS = 16 };

static int repeats(size_t n)
{
    return n * sizeof(float) < SHORT ? REPEATS : 1;
}

static size_t largest(const struct cmn_bench *b)
{
    size_t most = 0;

    for (int i = 0; i < b->sizes; i++) {
        most = b->size[i] > most ? b->size[i] : most;
    }
    return most;
}

/* Ranks of a node may see different amounts of free memory, so all of them have to agree. */
static void require_memory(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;
    size_t need = (size_t)b->names * largest(b) * sizeof(float) * (size_t)t->intra_size;
    size_t left = cmn_memory_free();
    int bad = t->device < 0 && need > left; /* a GPU refuses by itself */
    int first = cmn_mpi_first_bad(bad, t->world);

    if (bad) {
        cmn_fatal("%zu MiB of memory are needed for %d candidates on %d ranks, %zu are free: "
                  "give smaller -sizes or fewer -communicators",
                  need >> 20, b->names, t->intra_size, left >> 20);
    }
    if (first >= 0) {
        cmn_fatal("rank %d has too little memory", first);
    }
}

static void open_all(struct cmn_bench *b)
{
    for (int i = 0; i < b->names; i++) {
        struct cmn_candidate *k = &b->candidate[b->candidates];
        cmn_status_wait("opening the communicators");
        cmn_candidate_open(k, b->name[i], b->session, largest(b));
        if (!k->refusal[0]) {
            b->candidates++;
            continue;
        }
        if (b->named) {
            cmn_fatal("communicator %s cannot be used here: %s", k->name, k->refusal);
        }
        cmn_say("without %s: %s", k->name, k->refusal);
        cmn_candidate_close(k);
    }
}

/* Adds the wrong floats of all ranks, of each candidate, to wrong[]. */
static void verify(struct cmn_bench *b, size_t n, long *wrong)
{
    for (int i = 0; i < b->candidates; i++) {
        struct cmn_candidate *k = &b->candidate[i];
        long sum;
        cmn_status_wait("a verified exchange");
        cmn_candidate_fill(k, n);
        cmn_candidate_run(k, n);
        sum = cmn_candidate_wrong(k, n);
        if (sum < 0) {
            wrong[i] = -1;
            continue;
        }
        MPI_CALL(
            MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, b->session->topology.world));
        wrong[i] += sum;
    }
}

/* Every candidate's turn; seconds[i] becomes this rank's time of one exchange of candidate i. */
static void take_turns(struct cmn_bench *b, size_t n, double *seconds)
{
    for (int i = 0; i < b->candidates; i++) {
        double begin;
        cmn_status_wait("a timed exchange");
        MPI_CALL(MPI_Barrier(b->session->topology.world));
        begin = cmn_clock();
        for (int k = 0; k < repeats(n); k++) {
            cmn_candidate_run(&b->candidate[i], n);
        }
        seconds[i] = (cmn_clock() - begin) / repeats(n);
    }
}

/* As many iterations as fit into this size's part of the time, when one takes so many seconds. */
static int choose_iterations(const struct cmn_bench *b, double seconds)
{
    double fit = (double)TIME / b->sizes / (seconds + 1e-9);
    int iterations = b->iterations  ? b->iterations
                     : fit < FEWEST ? FEWEST
                     : fit > MOST   ? MOST
                                    : (int)fit;

    MPI_CALL(MPI_Bcast(&iterations, 1, MPI_INT, 0, b->session->topology.world));
    return iterations;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Times all turns of all iterations, one after the other: on rank 0 the slowest rank's. The caller
 * frees the result. */
static double *time_size(struct cmn_bench *b, size_t n, int *iterations)
{
    double warm[CMN_BENCH_ROWS], sum = 0, *all;

    for (int i = 0; i < b->candidates; i++) {
        cmn_candidate_clear(&b->candidate[i], n); /* sums of sums would soon be infinite */
    }
    take_turns(b, n, warm);
    for (int i = 0; i < b->candidates; i++) {
        sum += warm[i] * repeats(n);
    }
    *iterations = choose_iterations(b, sum);
    all = cmn_calloc((size_t)(*iterations * b->candidates), sizeof *all);
    for (int k = 0; k < *iterations; k++) {
        take_turns(b, n, all + k * b->candidates);
    }
    return all;
}

/* Benchmarks one size; rank 0 prints its rows, or adds them to the document. Returns 1 when a sum
 * was wrong on any rank. */
static int run_size(struct cmn_bench *b, size_t n, cJSON *document)
{
    const struct cmn_topology *t = &b->session->topology;
    long wrong[CMN_BENCH_ROWS] = {0};
    int iterations, any_wrong = 0;
    double *all, *x;

    verify(b, n, wrong);
    all = time_size(b, n, &iterations);
    verify(b, n, wrong);
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, all, iterations * b->candidates, MPI_DOUBLE, MPI_MAX,
                           t->world));
    x = cmn_calloc((size_t)iterations, sizeof *x);
    for (int i = 0; i < b->candidates; i++) {
        struct row row = {b->candidate[i].name, n, 0, iterations, wrong[i]};
        for (int k = 0; k < iterations; k++) {
            x[k] = all[k * b->candidates + i];
        }
        row.seconds = median(x, iterations);
        any_wrong |= wrong[i] > 0;
        if (document) {
            add_json_row(b, &row, document);
        } else if (t->rank == 0) {
            print_row(b, &row);
        }
    }
    free(x);
    free(all);
    return any_wrong;
}

void cmn_tool_bench(struct cmn_tool_call *call)
{
    struct cmn_bench *b = cmn_calloc(1, sizeof *b);
    int prints = call->session->topology.rank == 0;
    cJSON *document = NULL;

    b->session = call->session;
    cmn_bench_arguments(b, call->argc, call->argv);
    require_memory(b);
    open_all(b);
    if (prints && b->json) {
        document = json_document(b);
    } else if (prints) {
        print_heading(b);
    }
    for (int i = 0; i < b->sizes; i++) {
        call->status |= run_size(b, b->size[i], document);
    }
    if (document) {
        print_json(document);
        cJSON_Delete(document);
    } else if (prints) {
        print_footing();
    }
    for (int i = 0; i < b->candidates; i++) {
        cmn_candidate_close(&b->candidate[i]);
    }
    free(b);
}
