#include "base/timeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int cmn_timeline_on;

static struct {
    pthread_mutex_t lock;
    pthread_t main;
    struct cmn_event *ring;
    size_t room, noted; /* spans that the ring holds; spans recorded so far */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const names[] = {
    [CMN_SPAN_LOAD] = "load",         [CMN_SPAN_FORWARD] = "forward",
    [CMN_SPAN_BACKWARD] = "backward", [CMN_SPAN_ENCODE] = "encode",
    [CMN_SPAN_EXCHANGE] = "exchange", [CMN_SPAN_WAIT] = "wait",
    [CMN_SPAN_UPDATE] = "update",     [CMN_SPAN_VALIDATE] = "validate",
    [CMN_SPAN_SAVE] = "save",         [CMN_SPAN_STEP] = "step",
};

_Static_assert(sizeof names / sizeof names[0] == CMN_SPANS, "each kind of span has a name");

const char *cmn_timeline_name(enum cmn_span_kind what)
{
    return names[what];
}

void cmn_timeline_open(size_t spans)
{
    self.ring = cmn_calloc(spans, sizeof *self.ring);
    self.room = spans;
    self.noted = 0;
    self.main = pthread_self();
    cmn_timeline_on = 1;
}

void cmn_timeline_span(enum cmn_span_kind what, int number, double begin, double end)
{
    struct cmn_event *e;

    if (!cmn_timeline_on) {
        return;
    }
    pthread_mutex_lock(&self.lock);
    e = &self.ring[self.noted++ % self.room];
    e->begin = (int64_t)(begin * 1e9);
    e->end = (int64_t)(end * 1e9);
    e->number = number;
    e->what = (int16_t)what;
    e->background =
        (what == CMN_SPAN_EXCHANGE && number >= 0) || !pthread_equal(self.main, pthread_self());
    pthread_mutex_unlock(&self.lock);
}

struct cmn_event *cmn_timeline_copy(size_t *n, size_t *lost)
{
    struct cmn_event *copy;
    size_t first, tail;

    pthread_mutex_lock(&self.lock);
    *n = self.noted < self.room ? self.noted : self.room;
    *lost = self.noted - *n;
    first = *lost ? self.noted % self.room : 0;
    tail = *n - first;
    copy = cmn_malloc(*n + 1, sizeof *copy);
    memcpy(copy, self.ring + first, tail * sizeof *copy);
    memcpy(copy + tail, self.ring, first * sizeof *copy);
    pthread_mutex_unlock(&self.lock);
    return copy;
}

void cmn_timeline_close(void)
{
    cmn_timeline_on = 0;
    free(self.ring);
    self.ring = NULL;
    self.room = self.noted = 0;
}
