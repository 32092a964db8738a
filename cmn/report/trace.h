/* The trace of all ranks (cmn_timeline): every rank converts its spans (base/timeline.h) to rank
 * 0's clock and sends them to rank 0, which writes one file. */
#ifndef CMN_TRACE_H
#define CMN_TRACE_H

#include "mpi/topology.h"
#include "report/trace_file.h"

struct cmn_trace;

struct cmn_trace_plan {
    const struct cmn_topology *topology;
    struct cmn_trace_about about; /* for the file; only rank 0 uses it */
    long steps;                   /* number of latest steps that the file shows */
    size_t spans;                 /* estimate of the spans that a rank records in a step */
};

/* Collective, blocking. Begins to record; ends the job when rank 0 cannot write the file. What the
 * plan points to must live until cmn_trace_close(). */
struct cmn_trace *cmn_trace_open(const struct cmn_trace_plan *plan);

/* Collective, blocking, between two steps. Writes the file anew. Unless `last` is set, it does
 * nothing if writing would take more than about a hundredth of the training's time. If the file
 * cannot be written, one warning says so, and a later call tries again. */
void cmn_trace_write(struct cmn_trace *trace, int last);

/* Collective. Ends the recording. NULL is allowed. */
void cmn_trace_close(struct cmn_trace *trace);

#endif
