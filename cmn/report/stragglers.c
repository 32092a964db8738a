#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "report/report.h"

/* Below so many steps a row says nothing about a rank: one step's disturbance is not a straggler. */
enum { STEPS_AT_LEAST = 5 };

/* Ranks that are listed one by one. */
enum { FEW = 8 };

typedef double (*part)(const struct cmn_rank_times *r);

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

/* The lower median over the ranks whose own time is at most `limit`; there is one. */
static double median(const struct cmn_rank_times *rank, int ranks, part of, double limit,
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

/* The part in which the rank loses more, against the ranks that are not late. */
static void say_by_what(const struct cmn_rank_times *rank, int ranks, double limit, double step,
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

int cmn_straggler_find(const struct cmn_rank_times *rank, int ranks, long steps,
                       struct cmn_straggler *s)
{
    double *room, usual, limit, waits, ms = 1e-3 * (double)steps;
    int late = 0;

    *s = (struct cmn_straggler){.rank = -1};
    if (ranks < 2 || steps < STEPS_AT_LEAST) {
        return 0;
    }
    room = calloc((size_t)ranks, sizeof *room);
    if (!room) {
        return cmn_fail("report: out of memory");
    }
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
        say_by_what(rank, ranks, limit, 1 / ms, room, s);
    }
    free(room);
    return 0;
}

/* ---- the line ---- */

struct text {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(t->text + t->used, t->bytes - t->used, format, args);
    va_end(args);
    t->used += n < 0 ? 0 : (size_t)n;
    t->used = t->used < t->bytes ? t->used : t->bytes - 1;
}

static void put_part(struct text *t, const char *name, const struct cmn_rank_times *rank, int ranks,
                     part of, double step)
{
    double least = HUGE_VAL, most = 0;

    put(t, "%s", name);
    for (int i = 0; i < ranks; i++) {
        double ms = of(&rank[i]) * step;
        least = fmin(least, ms);
        most = fmax(most, ms);
        if (ranks <= FEW) {
            put(t, " %.1f", ms);
        }
    }
    if (ranks > FEW) {
        put(t, " %.1f to %.1f", least, most);
    }
}

void cmn_ranks_line(const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s, char *text, size_t bytes)
{
    double step = 1e3 / (double)(steps > 0 ? steps : 1);
    struct text t = {text, bytes, 0};

    if (ranks > FEW) {
        put(&t, "  ms a step of %d ranks: ", ranks);
    } else {
        put(&t, "  ms a step%s: ", ranks > 1 ? " by rank" : "");
    }
    put_part(&t, "compute", rank, ranks, compute_of, step);
    put_part(&t, ", load", rank, ranks, load_of, step);
    put_part(&t, ", wait", rank, ranks, wait_of, step);
    if (s->rank >= 0) {
        put(&t, "; straggler: rank %d@%s (%s %.1f, others %.1f)", s->rank, rank[s->rank].host,
            s->by, s->its, s->usual);
    }
    if (s->rank >= 0 && s->more > 0) {
        put(&t, " and %d more", s->more);
    }
}
