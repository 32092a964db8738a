#include "watchdog/diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The number of ranks that a line names; the others are counted. */
enum { NAMED = 4 };

/* Additional milliseconds if all ranks wait: MPI may know the reason, and then reports it first. */
enum { OTHERS_FIRST = 1000 };

struct line {
    char *text;
    size_t bytes, used;
};

static void __attribute__((format(printf, 2, 3))) add(struct line *l, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(l->text + l->used, l->bytes - l->used, format, args);
    va_end(args);
    l->used += n < 0 ? 0 : (size_t)n;
    l->used = l->used < l->bytes ? l->used : l->bytes - 1;
}

static int of_host(enum cmn_rank_state s)
{
    return s == CMN_RANK_UNREACHABLE || s == CMN_RANK_UNHEARD;
}

/* Returns whether a rank has sent no heartbeat, or made no progress outside of a wait, for `limit`
 * milliseconds. */
static int is_unresponsive(const struct cmn_rank_status *v, long limit)
{
    if (v->ended || v->state == CMN_RANK_TRACED || v->state == CMN_RANK_UNKNOWN) {
        return 0;
    }
    return v->silent >= limit || (!v->waiting && v->stalled >= limit);
}

/* ---- the sentence ---- */

static void add_place(struct line *l, const struct cmn_rank_status *v)
{
    add(l, " in: %s", v->phase[0] ? v->phase : "the start");
    if (v->detail[0]) {
        add(l, " (%s)", v->detail);
    }
    if (v->layer >= 0) {
        add(l, ", layer %d", v->layer);
    }
    if (v->iteration >= 0) {
        add(l, ", iteration %ld", v->iteration);
    }
    if (v->bucket >= 0) {
        add(l, ", bucket %d", v->bucket);
    }
}

static const char *verb(const struct cmn_rank_status *v, long limit)
{
    switch (v->state) {
    case CMN_RANK_STOPPED:
        return "is stopped (SIGSTOP?)";
    case CMN_RANK_DEAD:
        return "has died";
    case CMN_RANK_BLOCKED:
        return "is blocked in the kernel (a disk or network drive that does not answer?)";
    default:
        return v->silent >= limit ? "is unresponsive" : "is stalled";
    }
}

/* Names all unresponsive ranks of a host that is itself the cause. */
static void add_host(struct line *l, const struct cmn_rank_status *seen, int n,
                     const struct cmn_rank_status *v, long limit)
{
    int ranks = 0;

    add(l, "%s (rank ", v->host);
    for (int i = 0; i < n; i++) {
        if (is_unresponsive(&seen[i], limit) && !strcmp(seen[i].host, v->host)) {
            if (ranks++ < NAMED) {
                add(l, "%s%d", ranks > 1 ? ", " : "", seen[i].rank);
            }
        }
    }
    if (ranks > NAMED) {
        add(l, ", … %d in all", ranks);
    }
    add(l, v->state == CMN_RANK_UNREACHABLE
               ? ") does not answer: the host is dead, or the link to it is cut"
               : ") is unresponsive, though the host answers: all its ranks are stopped, or have "
                 "ended");
}

/* Returns whether the host of this rank has been named with a rank before it. */
static int is_named(const struct cmn_rank_status *seen, int i, long limit)
{
    for (int k = 0; k < i && of_host(seen[i].state); k++) {
        if (is_unresponsive(&seen[k], limit) && seen[k].state == seen[i].state &&
            !strcmp(seen[k].host, seen[i].host)) {
            return 1;
        }
    }
    return 0;
}

static int add_unresponsive(struct line *l, const struct cmn_rank_status *seen, int n, long limit)
{
    int unresponsive = 0;

    for (int i = 0; i < n; i++) {
        const struct cmn_rank_status *v = &seen[i];
        if (!is_unresponsive(v, limit) || is_named(seen, i, limit)) {
            continue;
        }
        if (unresponsive++ >= NAMED) {
            continue;
        }
        add(l, unresponsive > 1 ? "; " : "");
        if (of_host(v->state)) {
            add_host(l, seen, n, v, limit);
            continue;
        }
        add(l, "rank %d@%s %s", v->rank, v->host, verb(v, limit));
        add_place(l, v);
    }
    if (unresponsive > NAMED) {
        add(l, "; and %d more", unresponsive - NAMED);
    }
    return unresponsive;
}

static void add_waiting(struct line *l, const struct cmn_rank_status *seen, int n, long limit,
                        int unresponsive)
{
    const struct cmn_rank_status *first = NULL;
    int waiting = 0;

    for (int i = 0; i < n; i++) {
        if (seen[i].waiting && !seen[i].ended && !is_unresponsive(&seen[i], limit)) {
            first = first ? first : &seen[i];
            waiting++;
        }
    }
    if (first) {
        add(l, "; %d other rank%s for %s in: %s", waiting, waiting > 1 ? "s wait" : " waits",
            unresponsive > 1 ? "them" : "it", first->phase);
    }
}

/* ---- nobody is unresponsive, and nobody makes progress ---- */

/* Returns whether all known ranks wait for each other. A rank that has ended while others are
 * outside of MPI's own end has said why, and that is no stall; ranks leave MPI's own end one after
 * the other. Sets *unknown and *ended to the numbers of ranks that are unknown, and that have
 * ended. */
static int all_wait(const struct cmn_rank_status *seen, int n, long limit, int *unknown, int *ended)
{
    int waiting = 0, elsewhere = 0;

    *unknown = *ended = 0;
    for (int i = 0; i < n; i++) {
        if (seen[i].state == CMN_RANK_UNKNOWN) {
            ++*unknown;
        } else if (seen[i].ended) {
            ++*ended;
        } else if (!seen[i].waiting || seen[i].stalled < limit + OTHERS_FIRST ||
                   seen[i].state == CMN_RANK_TRACED) {
            return 0;
        } else {
            waiting++;
            elsewhere += strcmp(seen[i].phase, CMN_STATUS_END) != 0;
        }
    }
    return waiting && !(*ended && elsewhere);
}

static void add_left_behind(struct line *l, const struct cmn_rank_status *seen, int n)
{
    int named = 0;

    add(l, "not all ranks come through " CMN_STATUS_END ":");
    for (int i = 0; i < n; i++) {
        if (!seen[i].ended && seen[i].state != CMN_RANK_UNKNOWN && named++ < NAMED) {
            add(l, "%s rank %d@%s", named > 1 ? "," : "", seen[i].rank, seen[i].host);
        }
    }
    add(l, named > NAMED ? ", … do not" : named > 1 ? " do not" : " does not");
}

static void add_all(struct line *l, const struct cmn_rank_status *seen, int n)
{
    long least = seen[0].exchanges, most = least;
    int named = 0;

    add(l, "all ranks wait for each other");
    for (int i = 0; i < n; i++) {
        least = seen[i].exchanges < least ? seen[i].exchanges : least;
        most = seen[i].exchanges > most ? seen[i].exchanges : most;
    }
    for (int i = 0; i < n; i++) {
        if (named >= NAMED || (least != most && seen[i].exchanges == most && i > 0)) {
            continue;
        }
        add(l, "%s rank %d@%s", named++ ? ";" : ":", seen[i].rank, seen[i].host);
        add_place(l, &seen[i]);
        add(l, " (exchange %ld%s)", seen[i].exchanges,
            least != most && seen[i].exchanges == least ? ", which is behind" : "");
    }
}

static void add_unknown(struct line *l, const struct cmn_rank_status *seen, int n)
{
    for (int i = 0; i < n; i++) {
        if (seen[i].state != CMN_RANK_UNKNOWN) {
            add(l, "rank %d@%s waits", seen[i].rank, seen[i].host);
            add_place(l, &seen[i]);
            break;
        }
    }
    for (int i = 0; i < n; i++) {
        if (seen[i].state == CMN_RANK_UNKNOWN && seen[i].host[0]) {
            add(l, "; rank %d@%s has not been heard yet", seen[i].rank, seen[i].host);
            break;
        }
    }
    add(l, ". Another rank is stopped, or its host cannot be reached any more");
}

static int has_unreachable(const struct cmn_rank_status *seen, int n, long limit)
{
    for (int i = 0; i < n; i++) {
        if (seen[i].state == CMN_RANK_UNREACHABLE && is_unresponsive(&seen[i], limit)) {
            return 1;
        }
    }
    return 0;
}

int cmn_diagnose(const struct cmn_rank_status *seen, int n, long limit, char *text, size_t bytes)
{
    struct line l = {.text = text, .bytes = bytes};
    int unresponsive, unknown, ended;

    add(&l, "nothing moved for %ld s (cmn_timeout): ", limit / 1000);
    unresponsive = add_unresponsive(&l, seen, n, limit);
    if (unresponsive) {
        add_waiting(&l, seen, n, limit, unresponsive);
        return has_unreachable(seen, n, limit) ? CMN_DIAGNOSED_UNREACHABLE
                                               : CMN_DIAGNOSED_UNRESPONSIVE;
    }
    if (!all_wait(seen, n, limit, &unknown, &ended)) {
        return 0;
    }
    if (ended) {
        add_left_behind(&l, seen, n);
    } else if (unknown) {
        add_unknown(&l, seen, n);
    } else {
        add_all(&l, seen, n);
    }
    return CMN_DIAGNOSED_UNRESPONSIVE;
}
