/* The trace of all ranks (cmn_timeline): rank 0 gathers the spans of base/timeline.h, converts
 * them to its own clock and writes one file. */
#ifndef CMN_TRACE_H
#define CMN_TRACE_H

#include "mpi/topology.h"
#include "report/trace_file.h"

struct cmn_trace;

struct cmn_trace_plan {
    const struct cmn_topology *topology;
    struct cmn_trace_about about; /* rank 0 writes it */
    long steps;                   /* the latest so many are kept */
    size_t spans;                 /* estimate of what a step records */
};

/* Collective, blocking. Begins to record; ends the job when rank 0 cannot write the file. The
 * caller keeps what the plan points to. */
struct cmn_trace *cmn_trace_open(const struct cmn_trace_plan *plan);

/* Collective, blocking, between two steps. Writes the file anew; unless it is the `last` time, only
 * when writing takes a hundredth of the training's time at most. When the file cannot be written a
 * line says so, once, and the next time tries again. */
void cmn_trace_write(struct cmn_trace *trace, int last);

/* Collective. Ends the recording. NULL is allowed. */
void cmn_trace_close(struct cmn_trace *trace);

#endif
