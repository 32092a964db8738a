#include <stdint.h>
#include <stdlib.h>

#include "report/trace.h"
#include "base/timeline.h"

long cmn_trace_events_first_step(const struct cmn_event *event, size_t n, size_t lost, long steps)
{
    /* The ring keeps what ended last: of what began after the end of its oldest span nothing is missing. */
    int64_t complete = lost && n ? event[0].end : INT64_MIN;
    long first = -1, last = -1;

    for (size_t i = n; i-- > 0;) {
        if (event[i].what != CMN_SPAN_STEP) {
            continue;
        }
        last = last < 0 ? event[i].number : last;
        if (event[i].begin < complete || event[i].number <= last - steps) {
            break;
        }
        first = event[i].number;
    }
    return first;
}

size_t cmn_trace_events_from_step(struct cmn_event *event, size_t n, long step)
{
    int64_t begin = INT64_MIN;
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (event[i].what == CMN_SPAN_STEP && event[i].number == step) {
            begin = event[i].begin;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (event[i].begin >= begin) {
            event[kept++] = event[i];
        }
    }
    return kept;
}

/* Of two that begin together the longer one is around the other. */
static int by_begin(const void *one, const void *other)
{
    const struct cmn_event *a = one, *b = other;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end == b->end ? 0 : a->end > b->end ? -1 : 1;
}

int cmn_trace_events_tracks(struct cmn_event *event, size_t n)
{
    enum { MOST = 256 };
    int64_t end[MOST];
    int tracks = 0;

    qsort(event, n, sizeof *event, by_begin);
    for (size_t i = 0; i < n; i++) {
        int track = 0;
        if (!event[i].background) {
            continue;
        }
        while (track < tracks && end[track] > event[i].begin) {
            track++;
        }
        track = track < MOST ? track : MOST - 1;
        tracks = track < tracks ? tracks : track + 1;
        end[track] = event[i].end;
        event[i].background = (int16_t)(track + 1);
    }
    return tracks;
}
