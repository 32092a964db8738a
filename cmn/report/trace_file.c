#include "report/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/timeline.h"
#include "mpi/files.h"

/* ---- the spans of one rank ---- */

long cmn_trace_first_step(const struct cmn_event *event, size_t n, size_t lost, long steps)
{
    /* The ring keeps the spans that ended last, so no span that began after the end of the oldest
     * one is missing. */
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

size_t cmn_trace_from_step(struct cmn_event *event, size_t n, long step)
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

/* Compares spans by their begin. Of two that begin together the longer one comes first, because it
 * encloses the other. */
static int by_begin(const void *one, const void *other)
{
    const struct cmn_event *a = one, *b = other;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end == b->end ? 0 : a->end > b->end ? -1 : 1;
}

int cmn_trace_tracks(struct cmn_event *event, size_t n)
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

/* ---- the file ---- */

/* Every trace begins with this text; only a file that begins with it may be replaced. */
static const char head[] = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"darknet-cmn ";

static int fails(const struct cmn_trace_file *f)
{
    return cmn_fail("timeline %s: %s", f->about.name, strerror(errno));
}

int cmn_trace_file_open(struct cmn_trace_file *f, const struct cmn_trace_about *about)
{
    memset(f, 0, sizeof *f);
    f->about = *about;
    if (cmn_files_replaceable("timeline", about->name, head, NULL, 0)) {
        return -1;
    }
    if (cmn_draft_open(&f->draft, about->name)) {
        return fails(f);
    }
    cmn_draft_drop(&f->draft);
    return 0;
}

void cmn_trace_file_close(struct cmn_trace_file *f)
{
    cmn_draft_drop(&f->draft);
}

int cmn_trace_file_begin(struct cmn_trace_file *f, const char *metadata)
{
    f->events = 0;
    if (cmn_draft_open(&f->draft, f->about.name)) {
        return fails(f);
    }
    fprintf(f->draft.out, "%s%s\"%s%s},\n\"traceEvents\":[", head, CMN_VERSION,
            metadata[0] ? "," : "", metadata);
    return 0;
}

int cmn_trace_file_end(struct cmn_trace_file *f)
{
    fputs("\n]}\n", f->draft.out);
    return cmn_draft_commit(&f->draft, f->about.name) ? fails(f) : 0;
}

/* ---- events ---- */

/* Ids of processes and threads begin with 1: Perfetto takes 0 for the kernel's idle process. */
enum { FIRST_ID = 1 };

static void separate(struct cmn_trace_file *f)
{
    fputs(f->events++ ? ",\n" : "\n", f->draft.out);
}

/* Writes a metadata event ("M"). `value` is JSON text. */
static void describe(struct cmn_trace_file *f, const char *what, int rank, int track,
                     const char *key, const char *value)
{
    separate(f);
    fprintf(f->draft.out,
            "{\"name\":\"%s\",\"ph\":\"M\",\"ts\":0,\"pid\":%d,\"tid\":%d,\"args\":{\"%s\":%s}}",
            what, rank + FIRST_ID, track + FIRST_ID, key, value);
}

static void describe_rank(struct cmn_trace_file *f, const struct cmn_trace_rank *r)
{
    char text[128];

    snprintf(text, sizeof text, "\"rank %d@%s\"", r->rank, r->host);
    for (char *c = text + 1; c[0] && c[1]; c++) {
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '?' : *c;
    }
    describe(f, "process_name", r->rank, 0, "name", text);
    snprintf(text, sizeof text, "%d", r->rank);
    describe(f, "process_sort_index", r->rank, 0, "sort_index", text);
    if (r->node > 0) {
        snprintf(text, sizeof text, "\"clock %+.6f s, to %.0f us\",\"ahead\":%.9f", r->clock.ahead,
                 r->clock.error * 1e6, r->clock.ahead);
        describe(f, "process_labels", r->rank, 0, "labels", text);
    }
    for (int track = 0; track <= r->tracks; track++) {
        snprintf(text, sizeof text, "\"exchange %d\"", track);
        describe(f, "thread_name", r->rank, track, "name",
                 track == 0   ? "\"training\""
                 : track == 1 ? "\"exchange\""
                              : text);
        snprintf(text, sizeof text, "%d", track);
        describe(f, "thread_sort_index", r->rank, track, "sort_index", text);
    }
}

/* Returns what a span's number counts. */
static const char *counted(int what)
{
    switch (what) {
    case CMN_SPAN_FORWARD:
    case CMN_SPAN_BACKWARD:
        return "layer";
    case CMN_SPAN_ENCODE:
        return "shard";
    case CMN_SPAN_EXCHANGE:
    case CMN_SPAN_WAIT:
        return "bucket";
    case CMN_SPAN_STEP:
        return "iteration";
    default:
        return "number";
    }
}

/* Writes microseconds with three decimals. It uses integers, so no digit is lost and no locale
 * writes a comma. */
static void time_of(char *text, size_t bytes, int64_t ns)
{
    snprintf(text, bytes, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void span(struct cmn_trace_file *f, int rank, const struct cmn_event *e)
{
    const char *name = cmn_timeline_name((enum cmn_span_kind)e->what), *layer = "";
    int64_t base = (int64_t)(f->about.began * 1e9);
    /* No span begins before the training, even if a clock was read a little late. */
    int64_t begin = e->begin > base ? e->begin - base : 0;
    int64_t end = e->end - base > begin ? e->end - base : begin;
    char at[40], took[40];

    if ((e->what == CMN_SPAN_FORWARD || e->what == CMN_SPAN_BACKWARD) && e->number >= 0 &&
        e->number < f->about.layers) {
        layer = f->about.layer[e->number];
    }
    time_of(at, sizeof at, begin);
    /* The span is a nanosecond shorter than it was: viewers add in floating point, and hide a span
     * that seems to reach into the next one. */
    time_of(took, sizeof took, end > begin ? end - begin - 1 : 0);
    separate(f);
    fprintf(f->draft.out, "{\"name\":\"%s", name);
    if (e->number >= 0) {
        fprintf(f->draft.out, " %d", e->number);
    }
    fprintf(f->draft.out,
            "%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%s,\"dur\":%s,\"pid\":%d,\"tid\":%d",
            layer[0] ? " " : "", layer, name, at, took, rank + FIRST_ID, e->background + FIRST_ID);
    if (e->number >= 0) {
        fprintf(f->draft.out, ",\"args\":{\"%s\":%d}", counted(e->what), e->number);
    }
    fputs("}", f->draft.out);
}

void cmn_trace_file_rank(struct cmn_trace_file *f, const struct cmn_trace_rank *rank,
                         const struct cmn_event *event)
{
    describe_rank(f, rank);
    for (size_t i = 0; i < rank->events; i++) {
        span(f, rank->rank, &event[i]);
    }
}
