/* darknet cmn bench: every communicator, MPI_Allreduce itself and the measure of memory, in turn.
 *
 * For each size, all contestants are verified once; then, iteration by iteration, each of them has its turn, so that
 * a slow moment of the machine meets all alike; then all are verified again. */
#include "tools/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "tools/tools.h"
#include "base/status.h"

/* Seconds that all timed iterations may take, unless -iters says how many there are. */
enum { TIME = 8, FEWEST = 3, MOST = 100 };

/* Exchanges of less than this are timed several at a time. */
enum { SHORT = 64 << 10, REPEATS = 16 };

static size_t largest(const struct cmn_bench *b)
{
    size_t most = 0;

    for (int i = 0; i < b->sizes; i++) {
        most = b->size[i] > most ? b->size[i] : most;
    }
    return most;
}

/* Local, yet the same on all ranks of a node but for moments in which memory changes; so rank 0 decides. */
static int afford(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;
    size_t need = (size_t)b->names * largest(b) * sizeof(float) * (size_t)t->intra_size;
    int bad = t->device < 0 && need > cmn_memory_free(); /* a GPU refuses by itself */
    int first = cmn_mpi_first_bad(bad, t->world);

    if (bad) {
        return cmn_fail(
            "%zu MiB of memory are needed for %d contestants on %d ranks, %zu are free: "
            "give smaller -sizes or fewer -communicators",
            need >> 20, b->names, t->intra_size, cmn_memory_free() >> 20);
    }
    return first >= 0 ? cmn_fail("rank %d has too little memory", first) : 0;
}

static int open_all(struct cmn_bench *b)
{
    for (int i = 0; i < b->names; i++) {
        struct cmn_benchmark *k = &b->in[b->ins];
        cmn_status_wait("opening the communicators");
        if (cmn_benchmark_open(k, b->name[i], b->session, largest(b))) {
            return -1;
        }
        if (!k->out[0]) {
            b->ins++;
            continue;
        }
        if (b->named) {
            return cmn_fail("communicator %s cannot be used here: %s", k->name, k->out);
        }
        cmn_say("without %s: %s", k->name, k->out);
        cmn_benchmark_close(k);
    }
    return 0;
}

/* Adds the wrong floats of all ranks, of every contestant, to wrong[]. */
static int verify(struct cmn_bench *b, size_t n, long *wrong)
{
    const struct cmn_topology *t = &b->session->topology;

    for (int i = 0; i < b->ins; i++) {
        struct cmn_benchmark *k = &b->in[i];
        long sum = 0;
        cmn_status_wait("a verified exchange");
        if (cmn_benchmark_fill(k, n) || cmn_benchmark_run(k, n) ||
            cmn_benchmark_wrong(k, n, &sum)) {
            return -1;
        }
        if (sum < 0) {
            wrong[i] = -1;
            continue;
        }
        if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, t->world),
                          "MPI_Allreduce")) {
            return -1;
        }
        wrong[i] += sum;
    }
    return 0;
}

/* Every contestant's turn; seconds[i] becomes this rank's time of one exchange of contestant i. */
static int take_turns(struct cmn_bench *b, size_t n, double *seconds)
{
    int repeats = n * sizeof(float) < SHORT ? REPEATS : 1;

    for (int i = 0; i < b->ins; i++) {
        double begin;
        cmn_status_wait("a timed exchange");
        if (cmn_mpi_check(MPI_Barrier(b->session->topology.world), "MPI_Barrier")) {
            return -1;
        }
        begin = cmn_clock();
        for (int k = 0; k < repeats; k++) {
            if (cmn_benchmark_run(&b->in[i], n)) {
                return -1;
            }
        }
        seconds[i] = (cmn_clock() - begin) / repeats;
    }
    return 0;
}

/* As many iterations as fit into this size's share of the time, by the last turn of all. */
static int choose_iterations(const struct cmn_bench *b, double seconds, int *iterations)
{
    double fit = (double)TIME / b->sizes / (seconds + 1e-9);

    *iterations = b->iterations  ? b->iterations
                  : fit < FEWEST ? FEWEST
                  : fit > MOST   ? MOST
                                 : (int)fit;
    return cmn_mpi_check(MPI_Bcast(iterations, 1, MPI_INT, 0, b->session->topology.world),
                         "MPI_Bcast");
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

/* seconds: all iterations' turns, one after the other, the slowest rank's. */
static int print_rows(const struct cmn_bench *b, size_t n, const double *seconds, int iterations,
                      const long *wrong)
{
    double *x = calloc((size_t)iterations, sizeof *x);
    int result = x ? 0 : cmn_fail("out of memory");

    for (int i = 0; i < b->ins && !result; i++) {
        struct cmn_bench_row row = {b->in[i].name, n, 0, iterations, wrong[i]};
        for (int k = 0; k < iterations; k++) {
            x[k] = seconds[k * b->ins + i];
        }
        row.seconds = median(x, iterations);
        result = cmn_bench_row(b, &row);
    }
    free(x);
    return result;
}

/* The caller frees *all: this rank's times of all turns. */
static int time_size(struct cmn_bench *b, size_t n, double **all, int *iterations)
{
    double warm[CMN_BENCH_ROWS], sum = 0;
    int result = 0;

    for (int i = 0; i < b->ins; i++) {
        if (cmn_benchmark_clear(&b->in[i], n)) { /* sums of sums would soon be infinite */
            return -1;
        }
    }
    if (take_turns(b, n, warm)) {
        return -1;
    }
    for (int i = 0; i < b->ins; i++) {
        sum += warm[i] * (n * sizeof(float) < SHORT ? REPEATS : 1);
    }
    if (choose_iterations(b, sum, iterations)) {
        return -1;
    }
    *all = calloc((size_t)(*iterations * b->ins), sizeof **all);
    if (!*all) {
        return cmn_fail("out of memory");
    }
    for (int k = 0; k < *iterations && !result; k++) {
        result = take_turns(b, n, *all + k * b->ins);
    }
    return result;
}

/* *any_wrong becomes 1 when a sum was wrong on any rank. */
static int run_size(struct cmn_bench *b, size_t n, int *any_wrong)
{
    const struct cmn_topology *t = &b->session->topology;
    long wrong[CMN_BENCH_ROWS] = {0};
    double *all = NULL;
    int iterations = 0, result;

    result = verify(b, n, wrong) || time_size(b, n, &all, &iterations) || verify(b, n, wrong) ||
             cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, all, iterations * b->ins, MPI_DOUBLE,
                                         MPI_MAX, t->world),
                           "MPI_Allreduce");
    if (!result && t->rank == 0) {
        result = print_rows(b, n, all, iterations, wrong);
    }
    for (int i = 0; i < b->ins; i++) {
        *any_wrong |= wrong[i] > 0;
    }
    free(all);
    return result ? -1 : 0;
}

int cmn_tool_bench(struct cmn_tool_call *call)
{
    struct cmn_bench *b = calloc(1, sizeof *b);
    int result, speaks = call->session->topology.rank == 0;

    if (!b) {
        return cmn_fail("out of memory");
    }
    b->session = call->session;
    result = cmn_bench_arguments(b, call->argc, call->argv) || afford(b) || open_all(b);
    if (!result && speaks) {
        result = cmn_bench_begin(b);
    }
    for (int i = 0; i < b->sizes && !result; i++) {
        result = run_size(b, b->size[i], &call->status);
    }
    if (!result && speaks) {
        result = cmn_bench_end(b);
    }
    for (int i = 0; i < b->ins && !result; i++) {
        cmn_benchmark_close(&b->in[i]);
    }
    free(b);
    return result ? -1 : 0;
}
