#include "report/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/timeline.h"
#include "mpi/call.h"

/* Limits of the spans that a rank keeps; the upper one takes 96 MiB. */
enum { SPANS_AT_LEAST = 4096, SPANS_AT_MOST = 1 << 22 };

/* The file is written again after PAUSE times the time that the last writing took, so writing takes
 * at most a hundredth of the time. */
enum { PAUSE = 100 };

struct cmn_trace {
    struct cmn_trace_plan plan;
    MPI_Comm comm;
    struct cmn_clock_offset clock;
    struct cmn_trace_file file; /* rank 0 */
    int failed;                 /* rank 0: the file could not be written this time */
    int said;                   /* rank 0: a warning has said so */
    double wrote, took; /* end of the last writing (cmn_clock()), and its seconds; rank 0's count */
};

/* What the ranks agree on before they write: the first and the last step, and the largest error of
 * their clocks in seconds. */
struct window {
    long first, last;
    double error;
};

struct cmn_trace *cmn_trace_open(const struct cmn_trace_plan *plan)
{
    struct cmn_trace *trace = cmn_calloc(1, sizeof *trace);
    const struct cmn_topology *t = plan->topology;
    size_t spans;

    trace->plan = *plan;
    if (t->rank == 0 && cmn_trace_file_open(&trace->file, &plan->about)) {
        cmn_fatal_reason();
    }
    MPI_CALL(MPI_Comm_dup(t->world, &trace->comm));
    cmn_clock_offset_open(&trace->clock, t, cmn_clock);
    cmn_clock_offset_measure(&trace->clock);
    spans = (size_t)plan->steps < SPANS_AT_MOST / plan->spans ? (size_t)plan->steps * plan->spans
                                                              : SPANS_AT_MOST;
    cmn_timeline_open(spans > SPANS_AT_LEAST ? spans : SPANS_AT_LEAST);
    return trace;
}

void cmn_trace_close(struct cmn_trace *trace)
{
    if (!trace) {
        return;
    }
    cmn_timeline_close();
    MPI_CALL(MPI_Comm_free(&trace->comm));
    cmn_trace_file_close(&trace->file);
    free(trace);
}

/* ---- what all ranks do ---- */

/* Collective. Finds the steps that every rank has recorded completely. */
static void agree(struct cmn_trace *trace, const struct cmn_event *event, size_t n, size_t lost,
                  struct window *w)
{
    const struct cmn_clock_offset *c = &trace->clock;
    double mine[2] = {(double)cmn_trace_first_step(event, n, lost, trace->plan.steps), 0}, all[2];

    for (int i = 0; i < c->marks; i++) { /* any measurement may have aligned a span */
        mine[1] = fmax(mine[1], c->mark[i].error);
    }
    MPI_CALL(MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, trace->comm));
    w->first = (long)all[0];
    w->error = all[1];
    for (size_t i = 0; i < n; i++) {
        w->last = event[i].what == CMN_SPAN_STEP ? event[i].number : w->last;
    }
}

static void align(const struct cmn_clock_offset *c, struct cmn_event *event, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        event[i].begin = llround(cmn_clock_offset_align(c, 1e-9 * (double)event[i].begin) * 1e9);
        event[i].end = llround(cmn_clock_offset_align(c, 1e-9 * (double)event[i].end) * 1e9);
    }
}

enum { TAG = 1 };

/* ---- what rank 0 does ---- */

static void give_up(struct cmn_trace *trace, int last)
{
    trace->failed = 1;
    if (last) {
        cmn_warn("%s: its last steps are not in it", cmn_reason());
    } else if (!trace->said++) {
        cmn_warn("%s; the training continues, and the timeline is written again at a later row",
                 cmn_reason());
    }
}

static void begin_file(struct cmn_trace *trace, const struct window *w, int last)
{
    const struct cmn_topology *t = trace->plan.topology;
    char metadata[256];

    snprintf(metadata, sizeof metadata,
             "\"ranks\":%d,\"nodes\":%d,\"first_step\":%ld,"
             "\"last_step\":%ld,\"clock_error_us\":%.3f",
             t->size, t->inter_size, w->first, w->last, w->error * 1e6);
    if (cmn_trace_file_begin(&trace->file, metadata)) {
        give_up(trace, last);
    }
}

static void write_ranks(struct cmn_trace *trace, const struct cmn_trace_rank *mine,
                        const struct cmn_event *event)
{
    struct cmn_trace_rank head = *mine;

    for (int rank = 0; rank < trace->plan.topology->size; rank++) {
        struct cmn_event *theirs = NULL;
        if (rank > 0) {
            cmn_mpi_recv(&head, sizeof head, rank, TAG, trace->comm);
            theirs = cmn_malloc(head.events + 1, sizeof *theirs);
            cmn_mpi_recv(theirs, head.events * sizeof *theirs, rank, TAG, trace->comm);
        }
        if (!trace->failed) {
            cmn_trace_file_rank(&trace->file, &head, rank ? theirs : event);
        }
        free(theirs);
    }
}

static void end_file(struct cmn_trace *trace, const struct window *w, int last)
{
    const struct cmn_topology *t = trace->plan.topology;

    if (trace->failed) {
        return;
    }
    if (cmn_trace_file_end(&trace->file)) {
        give_up(trace, last);
    } else if (last) {
        cmn_say("timeline %s: steps %ld to %ld of %d rank%s, clocks within %.0f us; open it at "
                "https://ui.perfetto.dev (docs/use/reports.md)",
                trace->plan.about.name, w->first, w->last, t->size, t->size == 1 ? "" : "s",
                w->error * 1e6);
    }
}

/* ---- together ---- */

static void write_file(struct cmn_trace *trace, int last)
{
    const struct cmn_topology *t = trace->plan.topology;
    struct window w = {-1, -1, 0};
    struct cmn_trace_rank head;
    size_t n, lost;
    struct cmn_event *event = cmn_timeline_copy(&n, &lost);

    if (!event) {
        cmn_fatal_reason();
    }
    trace->failed = 0;
    agree(trace, event, n, lost, &w);
    memset(&head, 0, sizeof head);
    n = cmn_trace_from_step(event, n, w.first);
    align(&trace->clock, event, n);
    head.events = n;
    head.tracks = cmn_trace_tracks(event, n);
    head.rank = t->rank;
    head.node = t->inter_rank;
    head.clock = trace->clock.mark[trace->clock.marks - 1];
    memcpy(head.host, t->host, sizeof head.host);
    if (t->rank != 0) {
        cmn_mpi_send(&head, sizeof head, 0, TAG, trace->comm);
        cmn_mpi_send(event, n * sizeof *event, 0, TAG, trace->comm);
    } else {
        begin_file(trace, &w, last);
        write_ranks(trace, &head, event);
        end_file(trace, &w, last);
    }
    free(event);
}

void cmn_trace_write(struct cmn_trace *trace, int last)
{
    double begin = cmn_clock();
    int due = last || begin - trace->wrote >= PAUSE * trace->took;

    MPI_CALL(MPI_Bcast(&due, 1, MPI_INT, 0, trace->comm));
    if (!due) {
        return;
    }
    begin = cmn_clock();
    cmn_clock_offset_measure(&trace->clock);
    write_file(trace, last);
    trace->wrote = cmn_clock();
    trace->took = trace->wrote - begin;
}
