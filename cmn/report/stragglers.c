#include "report/stragglers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

/* In a shorter row one disturbed step would make a rank look late. */
enum { STEPS_AT_LEAST = 5 };

/* At most this many ranks are listed one by one. */
enum { FEW = 8 };

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

static void put_times(FILE *out, const char *name, const struct cmn_rank_times *rank, int ranks,
                      time_of of, double step)
{
    double least = HUGE_VAL, most = 0;

    fputs(name, out);
    for (int i = 0; i < ranks; i++) {
        double ms = of(&rank[i]) * step;
        least = fmin(least, ms);
        most = fmax(most, ms);
        if (ranks <= FEW) {
            fprintf(out, " %.1f", ms);
        }
    }
    if (ranks > FEW) {
        fprintf(out, " %.1f to %.1f", least, most);
    }
}

void cmn_ranks_line(FILE *out, const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s)
{
    double step = 1e3 / (double)(steps > 0 ? steps : 1);

    if (ranks > FEW) {
        fprintf(out, "  ms a step of %d ranks: ", ranks);
    } else {
        fprintf(out, "  ms a step%s: ", ranks > 1 ? " by rank" : "");
    }
    put_times(out, "compute", rank, ranks, compute_of, step);
    put_times(out, ", load", rank, ranks, load_of, step);
    put_times(out, ", wait", rank, ranks, wait_of, step);
    if (s->rank >= 0) {
        fprintf(out, "; straggler: rank %d@%s (%s %.1f, others %.1f)", s->rank, rank[s->rank].host,
                s->by, s->its, s->usual);
    }
    if (s->rank >= 0 && s->more > 0) {
        fprintf(out, " and %d more", s->more);
    }
    putc('\n', out);
}
