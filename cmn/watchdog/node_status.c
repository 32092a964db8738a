#include "watchdog/node_status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/process.h"
#include "mpi/shared_window.h"

/* Milliseconds without a heartbeat after which the next rank leads; after which the kernel is asked
 * what became of the process. */
enum { NEXT_LEADS_MS = 700, ASK_MS = 1000 };

struct cmn_node_status {
    struct cmn_window *window; /* its common part says whether the job has been diagnosed */
    struct cmn_group group;
    unsigned long *beats; /* of each rank, at the last look */
    long *silent;
};

static struct cmn_status *record(const struct cmn_node_status *s, int intra_rank)
{
    return cmn_window_part(s->window, intra_rank);
}

static atomic_int *diagnosed(const struct cmn_node_status *s)
{
    return cmn_window_common(s->window);
}

struct cmn_node_status *cmn_node_status_open(const struct cmn_topology *t,
                                             const struct cmn_options *o)
{
    struct cmn_node_status *s = cmn_calloc(1, sizeof *s);
    struct cmn_status *mine;

    s->group = (struct cmn_group){t->intra, "intra", t, o};
    s->beats = cmn_calloc((size_t)t->intra_size, sizeof *s->beats);
    s->silent = cmn_calloc((size_t)t->intra_size, sizeof *s->silent);
    if (cmn_window_open(&s->window, &s->group, sizeof(struct cmn_status), sizeof(atomic_int))) {
        free(s->beats);
        free(s->silent);
        free(s);
        return NULL;
    }
    mine = record(s, t->intra_rank);
    atomic_store(&mine->rank, t->rank);
    cmn_status_move(mine);
    /* The barrier keeps ranks from reading statuses that are not there yet. */
    cmn_window_barrier(s->window);
    return s;
}

void cmn_node_status_look(struct cmn_node_status *s, long ms)
{
    for (int i = 0; i < s->group.topology->intra_size; i++) {
        unsigned long beats = atomic_load(&record(s, i)->beats);
        s->silent[i] = beats == s->beats[i] ? s->silent[i] + ms : 0;
        s->beats[i] = beats;
    }
}

int cmn_node_status_leads(const struct cmn_node_status *s)
{
    for (int i = 0; i < s->group.topology->intra_rank; i++) {
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

void cmn_rank_status_read(const struct cmn_status *r, const struct cmn_topology *t,
                          struct cmn_rank_status *v)
{
    memset(v, 0, sizeof *v);
    v->rank = atomic_load(&r->rank);
    memcpy(v->host, t->host, sizeof v->host);
    v->waiting = atomic_load(&r->waiting);
    v->ended = atomic_load(&r->ended);
    v->stalled = atomic_load(&r->stalled);
    v->iteration = atomic_load(&r->iteration);
    v->exchanges = atomic_load(&r->exchanges);
    v->layer = atomic_load(&r->layer);
    v->bucket = atomic_load(&r->bucket);
    cmn_status_phase(r, v->phase);
    cmn_status_fetch(r->detail, v->detail, sizeof v->detail);
}

void cmn_node_status_read(const struct cmn_node_status *s, int intra_rank,
                          struct cmn_rank_status *v)
{
    const struct cmn_status *r = record(s, intra_rank);

    cmn_rank_status_read(r, s->group.topology, v);
    v->silent = s->silent[intra_rank];
    if (!v->ended && (v->silent >= ASK_MS || v->stalled >= ASK_MS)) {
        v->state = ask(atomic_load(&r->pid));
    }
}

int cmn_node_status_diagnosed(const struct cmn_node_status *s)
{
    return atomic_load(diagnosed(s));
}

void cmn_node_status_tell(struct cmn_node_status *s)
{
    atomic_store(diagnosed(s), 1);
}

int cmn_node_status_ended(const struct cmn_node_status *s)
{
    for (int i = 0; i < s->group.topology->intra_size; i++) {
        if (!atomic_load(&record(s, i)->ended)) {
            return 0;
        }
    }
    return 1;
}
