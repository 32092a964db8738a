/* `darknet cmn bench`: time and bandwidth of each candidate.
 *
 * The candidates take turns, iteration by iteration, so that a slow moment of the machine affects
 * all of them. Afterwards the sum of each candidate is verified. */
#include "tools/bench.h"

#include <errno.h>
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

/* MPI_Allreduce takes the number of floats as an int, which holds more than this. */
#define MOST_BYTES (4ULL << 30)

enum { ITERATIONS_MOST = 100000 };

#define REFUSE(format, ...) cmn_fatal("darknet cmn bench: " format, __VA_ARGS__)

static void add_size(struct cmn_bench *b, const char *word)
{
    static const char units[] = "kKmMgG";
    char *end;
    unsigned long long bytes;

    errno = 0;
    bytes = strtoull(word, &end, 10);
    if (end > word && *end && strchr(units, *end)) {
        bytes =
            bytes > MOST_BYTES ? bytes : bytes << 10 * ((strchr(units, *end++) - units) / 2 + 1);
    }
    if (end == word || *end || errno || word[0] == '-' || bytes < sizeof(float) ||
        bytes > MOST_BYTES) {
        REFUSE("-sizes: %s is no size: write bytes, or a number with K, M or G, from 4 to 4G",
               word);
    }
    if (b->sizes == CMN_BENCH_SIZES) {
        REFUSE("-sizes: more than %d sizes", CMN_BENCH_SIZES);
    }
    b->size[b->sizes++] = (size_t)bytes / sizeof(float);
}

static void add_name(struct cmn_bench *b, const char *word)
{
    const char *name, *names[CMN_CANDIDATES], *nearest;
    int n = 0;

    for (int i = 0; i < b->names; i++) {
        if (!strcmp(b->name[i], word)) {
            REFUSE("-communicators: %s is named twice", word);
        }
    }
    for (; (name = cmn_candidate_name(n)); names[n++] = name) {
        if (!strcmp(name, word)) {
            b->name[b->names++] = name;
            return;
        }
    }
    nearest = cmn_nearest(word, names, n);
    if (nearest) {
        REFUSE("-communicators: unknown communicator %s: did you mean %s?", word, nearest);
    }
    REFUSE("-communicators: unknown communicator %s: known are those of `darknet cmn list`, %s and "
           "%s",
           word, CMN_RAW, CMN_MEMORY);
}

/* Calls `add` for each word of a list that is separated by commas. */
static void split(struct cmn_bench *b, const char *option, char *list,
                  void (*add)(struct cmn_bench *, const char *))
{
    char *word, *rest = list;

    while ((word = strsep(&rest, ","))) {
        if (!word[0]) {
            REFUSE("%s: there is nothing before or after a comma", option);
        }
        add(b, word);
    }
}

static int iterations_of(const char *value)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (end == value || *end || n < 1 || n > ITERATIONS_MOST) {
        REFUSE("-iters %s: the value must be a whole number, 1 to %d", value, ITERATIONS_MOST);
    }
    return (int)n;
}

static void set_defaults(struct cmn_bench *b)
{
    if (!b->sizes) {
        for (size_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
            b->size[b->sizes++] = bytes / sizeof(float);
        }
    }
    while (!b->named && (b->name[b->names] = cmn_candidate_name(b->names))) {
        b->names++;
    }
}

/* Reads the options without getopt: getopt_long_only() would accept every abbreviation, and
 * getopt_long() does not accept a single hyphen. */
void cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv)
{
    static const char *const known[] = {"-sizes", "-communicators", "-iters"};
    const char *one = b->session->options.communicator, *nearest;

    if (strcmp(one, "auto")) {
        REFUSE("cmn_communicator=%s: it takes a list: -communicators %s", one, one);
    }
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i];
        nearest = cmn_nearest(option, known, 3);
        if (!nearest) {
            REFUSE(
                "unknown argument %s; known are: -sizes, -communicators, -iters, -cmn_KEY VALUE, "
                "-nogpu",
                option);
        }
        if (strcmp(option, nearest)) {
            REFUSE("unknown argument %s: did you mean %s?", option, nearest);
        }
        if (i + 1 == argc) {
            REFUSE("%s: the value is missing", option);
        }
        if (!strcmp(option, "-iters")) {
            b->iterations = iterations_of(argv[i + 1]);
        } else if (!strcmp(option, "-sizes")) {
            split(b, option, argv[i + 1], add_size);
        } else {
            b->named = 1;
            split(b, option, argv[i + 1], add_name);
        }
    }
    set_defaults(b);
}

/* ---- the candidates ---- */

static size_t largest(const struct cmn_bench *b)
{
    size_t most = 0;

    for (int i = 0; i < b->sizes; i++) {
        most = b->size[i] > most ? b->size[i] : most;
    }
    return most;
}

/* Ends the job if a rank has too little memory. Ranks of a node may see different amounts of free
 * memory, so the ranks agree on the result. */
static void require_memory(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;
    size_t need = (size_t)b->names * largest(b) * sizeof(float) * (size_t)t->intra_size;
    size_t left = cmn_memory_free();
    int bad = t->device < 0 && need > left; /* on a GPU the allocation fails by itself */
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

/* ---- the benchmark ---- */

/* TIME: seconds that all timed iterations may take together; FEWEST, MOST: limits of the number of
 * iterations of a size. -iters overrides all three. */
enum { TIME = 8, FEWEST = 3, MOST = 100 };

/* REPEATS exchanges of fewer than SHORT bytes are timed together. */
enum { SHORT = 64 << 10, REPEATS = 16 };

static int repeats(size_t n)
{
    return n * sizeof(float) < SHORT ? REPEATS : 1;
}

/* Runs each candidate once. seconds[i] becomes this rank's time for one exchange of candidate i.
 * Returns this rank's time for all candidates. */
static double take_turns(struct cmn_bench *b, size_t n, double *seconds)
{
    double sum = 0;

    for (int i = 0; i < b->candidates; i++) {
        double begin;
        cmn_status_wait("a timed exchange");
        MPI_CALL(MPI_Barrier(b->session->topology.world));
        begin = cmn_clock();
        for (int k = 0; k < repeats(n); k++) {
            cmn_candidate_run(&b->candidate[i], n);
        }
        sum += cmn_clock() - begin;
        seconds[i] = (cmn_clock() - begin) / repeats(n);
    }
    return sum;
}

/* Returns the number of iterations that fit into this size's part of the time if one iteration
 * takes `seconds`. Rank 0 decides. */
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

/* Returns the median of the n values x[0], x[apart], x[2 * apart], ...; `sorted` has room for n. */
static double median(const double *x, int n, int apart, double *sorted)
{
    for (int i = 0; i < n; i++) {
        sorted[i] = x[(size_t)i * (size_t)apart];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Returns the times of all candidates of the first iteration, then of the second, and so on; each
 * is that of the slowest rank. The caller frees the result. */
static double *time_size(struct cmn_bench *b, size_t n, int *iterations)
{
    double warm[CMN_CANDIDATES], *all;
    int values;

    for (int i = 0; i < b->candidates; i++) {
        cmn_candidate_clear(&b->candidate[i], n); /* zeros, as sums of sums would overflow */
    }
    *iterations = choose_iterations(b, take_turns(b, n, warm));
    values = *iterations * b->candidates;
    all = cmn_calloc((size_t)values, sizeof *all);
    for (int k = 0; k < *iterations; k++) {
        take_turns(b, n, all + k * b->candidates);
    }
    MPI_CALL(
        MPI_Allreduce(MPI_IN_PLACE, all, values, MPI_DOUBLE, MPI_MAX, b->session->topology.world));
    return all;
}

/* Returns the number of wrong floats on all ranks; -1: the candidate does not sum. */
static long verify(struct cmn_candidate *k, size_t n)
{
    long wrong;

    cmn_status_wait("a verified exchange");
    wrong = cmn_candidate_verify(k, n);
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, k->session->topology.world));
    return wrong < 0 ? -1 : wrong;
}

static void print_heading(const struct cmn_topology *t)
{
    printf("# darknet-cmn %s, %d rank%s on %d node%s; sum of floats over all ranks, in place\n"
           "# time: median over the iterations of the slowest rank's; busbw = size / time * "
           "2(n-1)/n\n"
           "# %s: each rank reads its 1/n of n buffers of its own, adds, and writes the sum to "
           "all n,\n"
           "#   waiting for nobody: the limit of an exchange in shared memory\n"
           "#%11s  %-16s %11s %14s %8s\n",
           CMN_VERSION, t->size, t->size > 1 ? "s" : "", t->inter_size,
           t->inter_size > 1 ? "s" : "", CMN_MEMORY, "size (B)", "communicator", "time (us)",
           "busbw (GB/s)", "#wrong");
    fflush(stdout);
}

/* Prints a row. Only candidates that move all bytes have a bandwidth. */
static void print_row(const struct cmn_candidate *k, size_t n, double seconds, long wrong)
{
    double ranks = k->session->topology.size, bytes = (double)n * sizeof(float);
    char bus[16] = "-", counted[32] = "-";

    if (wrong >= 0 || k->part) {
        snprintf(bus, sizeof bus, "%.2f", bytes / seconds / 1e9 * 2 * (ranks - 1) / ranks);
    }
    if (wrong >= 0) {
        snprintf(counted, sizeof counted, "%ld", wrong);
    }
    printf("%12.0f  %-16s %11.1f %14s %8s\n", bytes, k->name, seconds * 1e6, bus, counted);
    fflush(stdout);
}

/* Times and verifies all candidates for n floats. Returns whether a sum was wrong on any rank. */
static int run_size(struct cmn_bench *b, size_t n)
{
    int iterations, any_wrong = 0;
    double *all = time_size(b, n, &iterations);
    double *sorted = cmn_calloc((size_t)iterations, sizeof *sorted);

    for (int i = 0; i < b->candidates; i++) {
        long wrong = verify(&b->candidate[i], n);
        any_wrong |= wrong > 0;
        if (b->session->topology.rank == 0) {
            print_row(&b->candidate[i], n, median(all + i, iterations, b->candidates, sorted),
                      wrong);
        }
    }
    free(sorted);
    free(all);
    return any_wrong;
}

void cmn_tool_bench(struct cmn_tool_call *call)
{
    struct cmn_bench *b = cmn_calloc(1, sizeof *b);

    b->session = call->session;
    cmn_bench_arguments(b, call->argc, call->argv);
    require_memory(b);
    open_all(b);
    if (b->session->topology.rank == 0) {
        print_heading(&b->session->topology);
    }
    for (int i = 0; i < b->sizes; i++) {
        call->status |= run_size(b, b->size[i]);
    }
    for (int i = 0; i < b->candidates; i++) {
        cmn_candidate_close(&b->candidate[i]);
    }
    free(b);
}
