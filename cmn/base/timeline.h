/* timeline: spans of time of this process, for the trace (cmn_timeline). Local.
 *
 * A ring of fixed size keeps the latest spans; report/trace.h writes them to a file. */
#ifndef CMN_TIMELINE_H
#define CMN_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

enum cmn_span_kind {
    CMN_SPAN_LOAD,     /* waiting for the loader, copying the batch */
    CMN_SPAN_FORWARD,  /* number: layer */
    CMN_SPAN_BACKWARD, /* number: layer */
    CMN_SPAN_ENCODE,   /* number: shard */
    /* number: bucket, from begin to end, in the background; -1: all gradients, blocking */
    CMN_SPAN_EXCHANGE,
    CMN_SPAN_WAIT, /* waiting for other ranks or the link */
    CMN_SPAN_UPDATE,
    CMN_SPAN_VALIDATE,
    CMN_SPAN_SAVE,
    CMN_SPAN_STEP, /* number: iteration, up to the end of the update */
    CMN_SPANS
};

/* 1 while spans are recorded. A caller that asks first saves reading the clock. */
extern int cmn_timeline_on;

/* Thread-safe. Records that span `what` with this number (-1: none) ran from `begin` to `end`
 * (cmn_clock()). Does nothing unless cmn_timeline_on. */
void cmn_timeline_span(enum cmn_span_kind what, int number, double begin, double end);

/* Returns the kind's name in the trace, e.g. "forward". The string is static. */
const char *cmn_timeline_name(enum cmn_span_kind what);

/* A recorded span. Times are nanoseconds of cmn_clock(). */
struct cmn_event {
    int64_t begin, end;
    int32_t number;
    int16_t what;       /* enum cmn_span_kind */
    int16_t background; /* 1: the main thread did something else meanwhile */
};

/* Starts recording, and keeps the latest `spans` spans. Must be called from the main thread. */
void cmn_timeline_open(size_t spans);

/* Returns a copy of the *n recorded spans in the order of their ends; the caller frees it. Sets
 * *lost to the number of older spans that the ring has dropped. */
struct cmn_event *cmn_timeline_copy(size_t *n, size_t *lost);

/* Stops recording and frees the ring. No other thread may record meanwhile. */
void cmn_timeline_close(void);

#endif
