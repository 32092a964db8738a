#include "optimizers/bucket_tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/call.h"

/* A later candidate is chosen only if its step takes less than this part of the time; smaller
 * differences are noise. The first candidate is "no overlap", if that is a choice. */
static const double better = 0.97;

static void add(struct cmn_bucket_tuner *t, size_t floats)
{
    t->bucket[t->candidates++] = floats;
}

void cmn_bucket_tuner_open(struct cmn_bucket_tuner *t, const struct cmn_options *o, size_t floats)
{
    const size_t part[] = {32, 8, 2};
    const size_t least = 16 * 1024;

    memset(t, 0, sizeof *t);
    if (o->overlap != CMN_OVERLAP_ON) {
        add(t, 0);
    }
    if (o->overlap == CMN_OVERLAP_OFF) {
        return;
    }
    if (o->bucket_mb > 0) {
        size_t bucket = (size_t)(o->bucket_mb * (1 << 20) / sizeof(float));
        add(t, bucket ? bucket : 1);
    }
    for (int i = 0; i < 3 && !(o->bucket_mb > 0); i++) {
        size_t bucket = floats / part[i];
        if (bucket >= least || i == 2) {
            add(t, bucket ? bucket : 1);
        }
    }
    if (t->candidates > 1) {
        t->steps = CMN_BUCKET_TUNER_WARMUP + t->candidates * CMN_BUCKET_TUNER_ROUNDS;
    }
}

static int candidate_of(const struct cmn_bucket_tuner *t)
{
    if (t->step >= t->steps) {
        return t->chosen;
    }
    return t->step < CMN_BUCKET_TUNER_WARMUP ? 0
                                             : (t->step - CMN_BUCKET_TUNER_WARMUP) % t->candidates;
}

size_t cmn_bucket_tuner_bucket(const struct cmn_bucket_tuner *t)
{
    return t->bucket[candidate_of(t)];
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void name(const struct cmn_bucket_tuner *t, int i, char *text, size_t bytes)
{
    if (t->bucket[i]) {
        snprintf(text, bytes, "buckets of %.3g MiB",
                 (double)t->bucket[i] * sizeof(float) / (1 << 20));
    } else {
        snprintf(text, bytes, "off");
    }
}

static void explain(struct cmn_bucket_tuner *t, const double *seconds)
{
    char text[64];
    int used;

    name(t, t->chosen, text, sizeof text);
    used = snprintf(t->why, sizeof t->why, "overlap %s%s: %.1f ms a step",
                    t->bucket[t->chosen] ? "on, " : "", text, 1e3 * seconds[t->chosen]);
    for (int i = 0; i < t->candidates; i++) {
        if (i != t->chosen) {
            name(t, i, text, sizeof text);
            used += snprintf(t->why + used, sizeof t->why - (size_t)used, "; %s %.1f", text,
                             1e3 * seconds[i]);
        }
    }
}

int cmn_bucket_tuner_took(struct cmn_bucket_tuner *t, double seconds,
                          const struct cmn_topology *topology)
{
    double median[CMN_BUCKET_TUNER_MOST] = {0};
    int trial = t->step - CMN_BUCKET_TUNER_WARMUP;

    if (t->step >= t->steps) {
        return 0;
    }
    if (trial >= 0) {
        t->seconds[trial % t->candidates][trial / t->candidates] = seconds;
    }
    if (++t->step < t->steps) {
        return 0;
    }
    for (int i = 0; i < t->candidates; i++) {
        qsort(t->seconds[i], CMN_BUCKET_TUNER_ROUNDS, sizeof t->seconds[i][0], ascending);
        median[i] = t->seconds[i][CMN_BUCKET_TUNER_ROUNDS / 2];
    }
    /* The slowest rank's time counts. All ranks choose from the same figures. */
    MPI_CALL(
        MPI_Allreduce(MPI_IN_PLACE, median, t->candidates, MPI_DOUBLE, MPI_MAX, topology->world));
    for (int i = 1; i < t->candidates; i++) {
        t->chosen = median[i] < better * median[t->chosen] ? i : t->chosen;
    }
    explain(t, median);
    return 1;
}
