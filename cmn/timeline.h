/* What this process did, and when: spans of time for the trace (cmn_timeline). Local. */
#ifndef CMN_TIMELINE_H
#define CMN_TIMELINE_H

#include <stddef.h>

enum cmn_span {
    CMN_SPAN_LOAD,     /* waiting for the loader, copying the batch */
    CMN_SPAN_FORWARD,  /* number: layer */
    CMN_SPAN_BACKWARD, /* number: layer */
    CMN_SPAN_ENCODE,   /* number: piece */
    CMN_SPAN_EXCHANGE, /* number: bucket; from its begin to its end, in the background */
    CMN_SPAN_WAIT,     /* for other ranks or the link, with nothing else to do */
    CMN_SPAN_UPDATE,
    CMN_SPAN_VALIDATE,
    CMN_SPAN_SAVE,
    CMN_SPANS
};

/* Whether spans are recorded: who asks saves a look at the clock. */
extern int cmn_timeline_on;

/* Notes that `what` number `number` (-1: it has none) took from `begin` to `end` (cmn_clock()) in this step. Does nothing
 * unless cmn_timeline_on. Any thread. */
void cmn_timeline_span(enum cmn_span what, int number, double begin, double end);

#endif
