/* The table of `darknet cmn bench`, with nccl-tests' columns, and the same as JSON. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "tools/bench.h"

static cJSON *document, *results;

static void bandwidths(const struct cmn_bench *b, const struct cmn_bench_row *row, double *algbw,
                       double *busbw)
{
    double n = b->session->topology.size;

    *algbw = (double)row->floats * sizeof(float) / row->seconds / 1e9;
    *busbw = *algbw * 2 * (n - 1) / n;
}

/* Only what moves all of the bytes has a bandwidth. */
static int moves(const struct cmn_bench_row *row)
{
    return row->wrong >= 0 || row->name[0] == '(';
}

static int begin_json(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;

    document = cJSON_CreateObject();
    if (!document || !cJSON_AddStringToObject(document, "version", CMN_VERSION) ||
        !cJSON_AddStringToObject(document, "host", t->host) ||
        !cJSON_AddNumberToObject(document, "ranks", t->size) ||
        !cJSON_AddNumberToObject(document, "nodes", t->inter_size) ||
        !(results = cJSON_AddArrayToObject(document, "results"))) {
        return cmn_fail("out of memory");
    }
    return 0;
}

int cmn_bench_begin(const struct cmn_bench *b)
{
    const struct cmn_topology *t = &b->session->topology;

    if (b->json) {
        return begin_json(b);
    }
    printf("# darknet-cmn %s, %d rank%s on %d node%s; sum of floats over all ranks, in place\n",
           CMN_VERSION, t->size, t->size > 1 ? "s" : "", t->inter_size,
           t->inter_size > 1 ? "s" : "");
    printf("#%11s %12s  %-16s %11s %8s %8s %8s\n", "size", "count", "communicator", "time", "algbw",
           "busbw", "#wrong");
    printf("#%11s %12s  %-16s %11s %8s %8s\n", "(B)", "(floats)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
    return 0;
}

static int row_json(const struct cmn_bench *b, const struct cmn_bench_row *row)
{
    cJSON *o = cJSON_CreateObject();
    double algbw, busbw;
    int good;

    bandwidths(b, row, &algbw, &busbw);
    good = o && cJSON_AddNumberToObject(o, "size", (double)(row->floats * sizeof(float))) &&
           cJSON_AddNumberToObject(o, "count", (double)row->floats) &&
           cJSON_AddStringToObject(o, "communicator", row->name) &&
           cJSON_AddNumberToObject(o, "time", row->seconds * 1e6) &&
           cJSON_AddNumberToObject(o, "iterations", row->iterations);
    if (good && moves(row)) {
        good = cJSON_AddNumberToObject(o, "algbw", algbw) &&
               cJSON_AddNumberToObject(o, "busbw", busbw);
    }
    if (good && row->wrong >= 0) {
        good = cJSON_AddNumberToObject(o, "wrong", (double)row->wrong) != NULL;
    }
    return good && cJSON_AddItemToArray(results, o) ? 0 : cmn_fail("out of memory");
}

int cmn_bench_row(const struct cmn_bench *b, const struct cmn_bench_row *row)
{
    char alg[16] = "-", bus[16] = "-", wrong[32] = "-";
    double algbw, busbw;

    if (b->json) {
        return row_json(b, row);
    }
    bandwidths(b, row, &algbw, &busbw);
    if (moves(row)) {
        snprintf(alg, sizeof alg, "%.2f", algbw);
        snprintf(bus, sizeof bus, "%.2f", busbw);
    }
    if (row->wrong >= 0) {
        snprintf(wrong, sizeof wrong, "%ld", row->wrong);
    }
    printf("%12zu %12zu  %-16s %11.1f %8s %8s %8s\n", row->floats * sizeof(float), row->floats,
           row->name, row->seconds * 1e6, alg, bus, wrong);
    fflush(stdout);
    return 0;
}

int cmn_bench_end(const struct cmn_bench *b)
{
    char *text;

    if (!b->json) {
        printf(
            "# time: median over the iterations of the slowest rank's; busbw = algbw * 2(n-1)/n\n");
        printf("# %s: sum in place, the limit of an exchange in shared memory: each rank "
               "reads its 1/n\n#   of n buffers of its own, adds, and writes the sum to all n, "
               "waiting for nobody\n",
               CMN_MEMORY);
        return 0;
    }
    text = cJSON_Print(document);
    if (!text) {
        return cmn_fail("out of memory");
    }
    printf("%s\n", text);
    free(text);
    cJSON_Delete(document);
    document = NULL;
    return 0;
}
