#include "watchdog/node_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "mpi/shared_window.h"

/* Milliseconds without a heartbeat after which the next rank leads; after which the kernel is asked
 * what became of the process. */
enum { NEXT_LEADS_MS = 700, ASK_MS = 1000 };

struct cmn_node_status {
    struct cmn_window *window; /* NULL: this rank knows only its own status */
    struct cmn_group group;
    int known, own;        /* number of known ranks, and which of them this rank is */
    atomic_int *diagnosed; /* whether the job has been diagnosed; in the window's common part */
    atomic_int alone;      /* the same without a window */
    unsigned long *beats;  /* of each rank, at the last look */
    long *silent;
};

static struct cmn_status *record(const struct cmn_node_status *s, int i)
{
    return s->window ? cmn_window_part(s->window, i) : cmn_status_mine();
}

struct cmn_node_status *cmn_node_status_open(const struct cmn_topology *t,
                                             const struct cmn_options *o, char *why, size_t bytes)
{
    struct cmn_node_status *s = cmn_calloc(1, sizeof *s);

    s->group = (struct cmn_group){t->intra, "intra", t, o};
    s->known = t->intra_size;
    s->own = t->intra_rank;
    why[0] = '\0';
    if (cmn_window_open(&s->window, &s->group, sizeof(struct cmn_status), sizeof(atomic_int))) {
        snprintf(why, bytes, "%s", cmn_reason());
        s->known = 1;
        s->own = 0;
    }
    s->diagnosed = s->window ? cmn_window_common(s->window) : &s->alone;
    s->beats = cmn_calloc((size_t)s->known, sizeof *s->beats);
    s->silent = cmn_calloc((size_t)s->known, sizeof *s->silent);
    atomic_store(&record(s, s->own)->rank, t->rank);
    if (s->window) {
        cmn_status_move(record(s, s->own));
        /* The barrier keeps ranks from reading statuses that are not there yet. */
        cmn_window_barrier(s->window);
    }
    return s;
}

int cmn_node_status_known(const struct cmn_node_status *s)
{
    return s->known;
}

void cmn_node_status_look(struct cmn_node_status *s, long ms)
{
    for (int i = 0; i < s->known; i++) {
        unsigned long beats = atomic_load(&record(s, i)->beats);
        s->silent[i] = beats == s->beats[i] ? s->silent[i] + ms : 0;
        s->beats[i] = beats;
    }
}

int cmn_node_status_leads(const struct cmn_node_status *s)
{
    for (int i = 0; i < s->own; i++) {
        if (s->silent[i] < NEXT_LEADS_MS) {
            return 0;
        }
    }
    return 1;
}

static enum cmn_rank_state ask(int pid)
{
    struct cmn_process p;

    if (cmn_process_read(pid, &p)) {
        return errno == ENOENT ? CMN_RANK_DEAD : CMN_RANK_ALIVE;
    }
    return p.state == 'T'                     ? CMN_RANK_STOPPED
           : p.state == 't'                   ? CMN_RANK_TRACED
           : p.state == 'D'                   ? CMN_RANK_BLOCKED
           : p.state == 'Z' || p.state == 'X' ? CMN_RANK_DEAD
                                              : CMN_RANK_ALIVE;
}

void cmn_node_status_read(const struct cmn_node_status *s, int i, struct cmn_rank_status *v)
{
    const struct cmn_status *r = record(s, i);

    memset(v, 0, sizeof *v);
    v->rank = atomic_load(&r->rank);
    memcpy(v->host, s->group.topology->host, sizeof v->host);
    v->waiting = atomic_load(&r->waiting);
    v->ended = atomic_load(&r->ended);
    v->stalled = atomic_load(&r->stalled);
    v->silent = s->silent[i];
    v->iteration = atomic_load(&r->iteration);
    v->exchanges = atomic_load(&r->exchanges);
    v->layer = atomic_load(&r->layer);
    v->bucket = atomic_load(&r->bucket);
    cmn_status_phase(r, v->phase);
    cmn_status_fetch(r->detail, v->detail, sizeof v->detail);
    if (s->window && !v->ended && (v->silent >= ASK_MS || v->stalled >= ASK_MS)) {
        v->state = ask(atomic_load(&r->pid));
    }
}

int cmn_node_status_diagnosed(const struct cmn_node_status *s)
{
    return atomic_load(s->diagnosed);
}

void cmn_node_status_tell(struct cmn_node_status *s)
{
    atomic_store(s->diagnosed, 1);
}

int cmn_node_status_ended(const struct cmn_node_status *s)
{
    for (int i = 0; i < s->known; i++) {
        if (!atomic_load(&record(s, i)->ended)) {
            return 0;
        }
    }
    return 1;
}
