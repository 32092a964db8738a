/* The file of a trace in the Trace Event Format, which Perfetto and Chrome read: the choice of a
 * rank's spans, their tracks, and the writing. Local. */
#ifndef CMN_TRACE_FILE_H
#define CMN_TRACE_FILE_H

#include <stddef.h>

#include "base/atomic_file.h"
#include "mpi/clock_offset.h"

struct cmn_event; /* base/timeline.h */

/* ---- the spans of one rank ---- */

/* Returns the first of the latest `steps` steps that was recorded completely; -1: none was. The
 * spans must be in the order of their ends; `lost` older spans are no longer there. */
long cmn_trace_first_step(const struct cmn_event *event, size_t n, size_t lost, long steps);

/* Removes the spans that began before that step. Returns the number of spans left. */
size_t cmn_trace_from_step(struct cmn_event *event, size_t n, long step);

/* Sorts the spans by their begin and distributes the background spans over tracks so that spans of
 * a track do not overlap: `background` becomes the track's number, counted from 1. Returns the
 * number of tracks. */
int cmn_trace_tracks(struct cmn_event *event, size_t n);

/* ---- the file ---- */

/* What a rank sends about itself. */
struct cmn_trace_rank {
    int rank, node;
    char host[64];
    struct cmn_clock_mark clock; /* the latest measurement of its clock against rank 0's */
    size_t events;
    int tracks; /* of background spans; the main thread has one more */
};

/* What a file is about. The strings must live as long as the file is in use. */
struct cmn_trace_about {
    const char *name;         /* of the file */
    const char *const *layer; /* type of each layer, e.g. "connected" */
    int layers;
    double began; /* cmn_clock() when the training began, which is time 0 of the trace */
};

struct cmn_trace_file {
    struct cmn_trace_about about;
    struct cmn_draft draft;
    long events;
};

/* Checks that a temporary file can be made beside the file, and that the file, if it exists, is a
 * trace. 0, or -1 with a reason; call cmn_trace_file_close() in either case. */
int cmn_trace_file_open(struct cmn_trace_file *f, const struct cmn_trace_about *about);

/* Begins to write a new file beside the previous one. `metadata` holds members of a JSON object, as
 * text, or "". 0, or -1 with a reason. */
int cmn_trace_file_begin(struct cmn_trace_file *f, const char *metadata);

/* Writes a rank's spans, which must have tracks (cmn_trace_tracks()) and rank 0's time.
 * cmn_trace_file_end() reports errors. */
void cmn_trace_file_rank(struct cmn_trace_file *f, const struct cmn_trace_rank *rank,
                         const struct cmn_event *event);

/* Replaces the previous file by the new one, atomically. 0, or -1 with a reason; then the previous
 * file is intact. */
int cmn_trace_file_end(struct cmn_trace_file *f);

/* Removes a file that cmn_trace_file_end() has not completed. */
void cmn_trace_file_close(struct cmn_trace_file *f);

#endif
