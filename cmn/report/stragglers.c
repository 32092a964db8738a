#include "report/stragglers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

/* In a shorter row one disturbed step would make a rank look late. */
enum { STEPS_AT_LEAST = 5 };

/* Up to FEW ranks are listed one by one; of more, THREE are: the fastest, the median and the slowest
 * one. */
enum { FEW = 8, THREE = 3 };

typedef double (*time_of)(const struct cmn_rank_times *r);

static double compute_of(const struct cmn_rank_times *r)
{
    return r->compute;
}

static double load_of(const struct cmn_rank_times *r)
{
    return r->load;
}

static double wait_of(const struct cmn_rank_times *r)
{
    return r->wait;
}

static double own_of(const struct cmn_rank_times *r)
{
    return r->compute + r->load;
}

/* ---- who is late ---- */

static int ascending(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

/* Returns the lower median of of(rank) over the ranks whose own time is at most `limit`; there must
 * be such a rank. `room` holds a number for each rank. */
static double median(const struct cmn_rank_times *rank, int ranks, time_of of, double limit,
                     double *room)
{
    int n = 0;

    for (int i = 0; i < ranks; i++) {
        if (own_of(&rank[i]) <= limit) {
            room[n++] = of(&rank[i]);
        }
    }
    qsort(room, (size_t)n, sizeof *room, ascending);
    return room[(n - 1) / 2];
}

/* Finds whether the rank loses more in compute or in load, compared with the ranks on time. */
static void find_cause(const struct cmn_rank_times *rank, int ranks, double limit, double step,
                       double *room, struct cmn_straggler *s)
{
    double compute = median(rank, ranks, compute_of, limit, room);
    double load = median(rank, ranks, load_of, limit, room);
    const struct cmn_rank_times *late = &rank[s->rank];
    int computes = late->compute - compute >= late->load - load;

    s->by = computes ? "compute" : "load";
    s->its = (computes ? late->compute : late->load) * step;
    s->usual = (computes ? compute : load) * step;
}

void cmn_straggler_find(const struct cmn_rank_times *rank, int ranks, long steps,
                        struct cmn_straggler *s)
{
    double *room, usual, limit, waits, ms = 1e-3 * (double)steps;
    int late = 0;

    *s = (struct cmn_straggler){.rank = -1};
    if (ranks < 2 || steps < STEPS_AT_LEAST) {
        return;
    }
    room = cmn_calloc((size_t)ranks, sizeof *room);
    usual = median(rank, ranks, own_of, HUGE_VAL, room);
    for (int i = 0; i < ranks; i++) {
        s->uneven |= own_of(&rank[i]) > usual * 1.1;
    }
    limit = fmax(usual * 1.2, usual + ms);
    waits = median(rank, ranks, wait_of, limit, room);
    for (int i = 0; i < ranks; i++) {
        double own = own_of(&rank[i]);
        double lost = own - usual;
        if (own > limit && waits - rank[i].wait >= lost / 2 && lost >= (own + rank[i].wait) / 10) {
            late++;
            s->rank = s->rank < 0 || own > own_of(&rank[s->rank]) ? i : s->rank;
        }
    }
    if (late) {
        s->more = late - 1;
        find_cause(rank, ranks, limit, 1 / ms, room, s);
    }
    free(room);
}

/* ---- the line ---- */

static int by_own_time(const void *one, const void *other)
{
    const struct cmn_rank_times *a = *(const struct cmn_rank_times *const *)one;
    const struct cmn_rank_times *b = *(const struct cmn_rank_times *const *)other;

    return (own_of(a) > own_of(b)) - (own_of(a) < own_of(b));
}

/* Fills `shown` with the ranks that the line lists, and returns their number. */
static int choose(const struct cmn_rank_times *rank, int ranks, const struct cmn_rank_times **shown)
{
    for (int i = 0; i < ranks; i++) {
        shown[i] = &rank[i];
    }
    if (ranks <= FEW) {
        return ranks;
    }
    qsort(shown, (size_t)ranks, sizeof(struct cmn_rank_times *), by_own_time);
    shown[1] = shown[(ranks - 1) / 2];
    shown[2] = shown[ranks - 1];
    return THREE;
}

static void put_names(FILE *out, const struct cmn_rank_times *rank, int ranks,
                      const struct cmn_rank_times *const *shown)
{
    static const char *const name[THREE] = {"fastest", "median", "slowest"};

    fprintf(out, " of %d ranks", ranks);
    for (int i = 0; i < THREE; i++) {
        fprintf(out, ", %s %ld@%s", name[i], (long)(shown[i] - rank), shown[i]->host);
    }
}

static void put_times(FILE *out, const char *name, const struct cmn_rank_times *const *shown, int n,
                      time_of of, double step)
{
    fputs(name, out);
    for (int i = 0; i < n; i++) {
        fprintf(out, " %.1f", of(shown[i]) * step);
    }
}

void cmn_ranks_line(FILE *out, const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s)
{
    const struct cmn_rank_times **shown = cmn_calloc((size_t)ranks, sizeof *shown);
    double step = 1e3 / (double)(steps > 0 ? steps : 1);
    int n = choose(rank, ranks, shown);

    fputs("  ms a step", out);
    if (ranks > FEW) {
        put_names(out, rank, ranks, shown);
    } else if (ranks > 1) {
        fputs(" by rank", out);
    }
    put_times(out, ": compute", shown, n, compute_of, step);
    put_times(out, ", load", shown, n, load_of, step);
    put_times(out, ", wait", shown, n, wait_of, step);
    free(shown);
    if (s->rank >= 0) {
        fprintf(out, "; straggler: rank %d@%s (%s %.1f, others %.1f)", s->rank, rank[s->rank].host,
                s->by, s->its, s->usual);
    }
    if (s->rank >= 0 && s->more > 0) {
        fprintf(out, " and %d more", s->more);
    }
    putc('\n', out);
}
