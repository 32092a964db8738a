/* What this process did, and when: spans of time for the trace (cmn_timeline). All local.
 *
 * Spans lie in a ring of fixed size: the latest are kept. report/trace.h makes a file of them. */
#ifndef CMN_TIMELINE_H
#define CMN_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

enum cmn_span_kind {
    CMN_SPAN_LOAD,     /* waiting for the loader, copying the batch */
    CMN_SPAN_FORWARD,  /* number: layer */
    CMN_SPAN_BACKWARD, /* number: layer */
    CMN_SPAN_ENCODE,   /* number: piece */
    CMN_SPAN_EXCHANGE, /* number: bucket; from its begin to its end, in the background. Without a number: of all
                          gradients, with nothing beside it */
    CMN_SPAN_WAIT, /* for other ranks or the link, with nothing else to do */
    CMN_SPAN_UPDATE,
    CMN_SPAN_VALIDATE,
    CMN_SPAN_SAVE,
    CMN_SPAN_STEP, /* number: iteration; all of it, but for what comes after the update */
    CMN_SPANS
};

/* Whether spans are recorded: who asks saves a look at the clock. */
extern int cmn_timeline_on;

/* Notes that `what` number `number` (-1: it has none) took from `begin` to `end` (cmn_clock()) in this step. Does nothing
 * unless cmn_timeline_on. Any thread. */
void cmn_timeline_span(enum cmn_span_kind what, int number, double begin, double end);

/* As people read it, e.g. "forward". Static. */
const char *cmn_timeline_name(enum cmn_span_kind what);

/* A span as it was noted: nanoseconds of cmn_clock(). */
struct cmn_event {
    int64_t begin, end;
    int32_t number;
    int16_t what;       /* enum cmn_span_kind */
    int16_t background; /* 1: beside what the main thread did */
};

/* From now on spans are recorded, the latest `spans` of them. The calling thread is the main thread. 0, or -1 with a reason. */
int cmn_timeline_open(size_t spans);

/* A copy of what is recorded, in the order of the spans' ends; the caller frees it. *lost becomes the number of
 * spans that were recorded before and are not kept. NULL with a reason when memory is short. */
struct cmn_event *cmn_timeline_copy(size_t *n, size_t *lost);

/* Records no more, and forgets. Other threads have ended, or record nothing. */
void cmn_timeline_close(void);

#endif
