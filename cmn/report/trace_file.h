/* The file of a trace, in the Trace Event Format, which Perfetto and Chrome read: which spans of a
 * rank go into it, on which tracks, and how they are written. Local. */
#ifndef CMN_TRACE_FILE_H
#define CMN_TRACE_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "mpi/clock_offset.h"

struct cmn_event; /* base/timeline.h */

/* ---- the spans of one rank ---- */

/* The first of the latest `steps` steps that was recorded completely; -1: none was. The spans are
 * in the order of their ends, and `lost` others were recorded before them. */
long cmn_trace_first_step(const struct cmn_event *event, size_t n, size_t lost, long steps);

/* Removes the spans that began before that step; returns how many are left. */
size_t cmn_trace_from_step(struct cmn_event *event, size_t n, long step);

/* Sorts the spans by their begin and spreads those in the background over tracks where they do not
 * overlap: `background` becomes the track's number, from 1 on. Returns the number of tracks. */
int cmn_trace_tracks(struct cmn_event *event, size_t n);

/* ---- the file ---- */

/* What a rank tells about itself. */
struct cmn_trace_rank {
    int rank, node;
    char host[64];
    struct cmn_clock_mark clock; /* the latest measurement of how far its clock is ahead */
    size_t events;
    int tracks; /* beside the main thread's */
};

/* What a file is about. The caller keeps the strings. */
struct cmn_trace_about {
    const char *name;         /* of the file */
    const char *const *layer; /* what each layer is, e.g. "connected" */
    int layers;
    double began; /* cmn_clock() when the training began: time 0 of the trace */
};

struct cmn_trace_file {
    struct cmn_trace_about about;
    char next[4200]; /* the file's name while it is written */
    FILE *out;
    long events;
};

/* Makes sure that the file can be made, and replaces no other kind of file; removes the trial
 * again. 0, or -1 with a reason; close
 * the file in either case. */
int cmn_trace_file_open(struct cmn_trace_file *f, const struct cmn_trace_about *about);

/* Begins to write beside the previous file. `metadata` are more members of a JSON object. 0, or -1
 * with a reason. */
int cmn_trace_file_begin(struct cmn_trace_file *f, const char *metadata);

/* Writes a rank's spans, which are on tracks (cmn_trace_tracks) and in rank 0's time. Errors are
 * reported by cmn_trace_file_end(). */
void cmn_trace_file_rank(struct cmn_trace_file *f, const struct cmn_trace_rank *rank,
                         const struct cmn_event *event);

/* The file replaces the previous one. 0, or -1 with a reason; then the previous one is intact. */
int cmn_trace_file_end(struct cmn_trace_file *f);

/* Removes a file that has not been ended. */
void cmn_trace_file_close(struct cmn_trace_file *f);

#endif
