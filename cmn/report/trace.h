/* The trace of all ranks (cmn_timeline): one file in the Trace Event Format, which Perfetto and Chrome read.
 * Times are those of rank 0's clock, from the beginning of the training on. */
#ifndef CMN_TRACE_H
#define CMN_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mpi/clock_offset.h"
#include "mpi/topology.h"

struct cmn_event;
struct cmn_trace;

struct cmn_trace_plan {
    const struct cmn_topology *topology;
    const char *file;         /* written by rank 0 */
    long steps;               /* the latest so many are kept */
    size_t spans;             /* about so many does a step record */
    const char *const *layer; /* what the layers are, e.g. "connected" */
    int layers;
    double began; /* cmn_clock() */
};

/* Collective, blocking. Begins to record. What the plan points to must outlive the trace. NULL with a reason; where rank 0
 * alone has one, such as a file that cannot be written, the others meet the end of the job in their next collective call. */
struct cmn_trace *cmn_trace_open(const struct cmn_trace_plan *plan);

/* Collective, blocking, between two steps. Writes the file anew. Unless it is the `last` time, it does so only when writing
 * takes no more than a hundredth of the training's time. When the file cannot be written a line says so, and it is not tried
 * again. 0, or -1 with a reason. */
int cmn_trace_write(struct cmn_trace *trace, int last);

/* Collective. Ends the recording. NULL is allowed. */
void cmn_trace_close(struct cmn_trace *trace);

/* What a rank says about itself. */
struct cmn_trace_rank {
    int rank, node;
    char host[64];
    struct cmn_clock_mark clock; /* how far it was ahead, at last */
    size_t events;
    int tracks; /* beside that of the main thread */
};

/* ---- report/events.c: the spans of one rank; all local ---- */

/* The first step that was recorded from its begin on and is one of the latest `steps`; -1: there is none. Before the n
 * spans, in the order of their ends, `lost` others were recorded. */
long cmn_trace_events_first_step(const struct cmn_event *event, size_t n, size_t lost, long steps);

/* Leaves away what began before that step; returns how many are left. */
size_t cmn_trace_events_from_step(struct cmn_event *event, size_t n, long step);

/* Sorts the spans by their begin and puts those beside the main thread's on tracks where they do not overlap: `background`
 * becomes the number of the track, from 1 on. Returns how many there are. */
int cmn_trace_events_tracks(struct cmn_event *event, size_t n);

/* ---- report/trace_file.c: how they are written; all local ---- */

struct cmn_trace_file {
    const char *name;
    char next[4200]; /* the name while the file is written */
    FILE *out;
    long events;
};

/* Makes sure that a file of that name can be made, and leaves no trace of that. `name` must outlive *f. 0, or -1 with a reason;
 * what a failed open leaves must be closed. */
int cmn_trace_file_open(struct cmn_trace_file *f, const char *name);

/* `about` is the inside of an object: facts about the whole file. */
int cmn_trace_file_begin(struct cmn_trace_file *f, const char *about);

/* The spans of a rank, on tracks (cmn_trace_events_tracks), by rank 0's clock. Errors come to light in cmn_trace_file_end(). */
void cmn_trace_file_rank(struct cmn_trace_file *f, const struct cmn_trace_plan *plan,
                         const struct cmn_trace_rank *rank, const struct cmn_event *event);

/* The file takes the place of the one before. 0, or -1 with a reason; the one before is intact then. */
int cmn_trace_file_end(struct cmn_trace_file *f);

void cmn_trace_file_close(struct cmn_trace_file *f);

#endif
