#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "report/trace.h"
#include "base/timeline.h"

static int fails(struct cmn_trace_file *f)
{
    int reason = errno;

    if (f->out) {
        fclose(f->out);
        f->out = NULL;
        unlink(f->next);
    }
    return cmn_fail("timeline %s: %s", f->name, strerror(reason));
}

static int begin_file(struct cmn_trace_file *f)
{
    int fd = cmn_atomic_open(f->name, f->next, sizeof f->next);

    f->out = fd < 0 ? NULL : fdopen(fd, "w");
    return f->out ? 0 : fails(f);
}

int cmn_trace_file_open(struct cmn_trace_file *f, const char *name)
{
    struct stat st;

    memset(f, 0, sizeof *f);
    f->name = name;
    /* A device would be replaced by a file. */
    if (!stat(name, &st) && !S_ISREG(st.st_mode)) {
        return cmn_fail("timeline %s: something that is not a file has this name", name);
    }
    if (begin_file(f)) {
        return -1;
    }
    fclose(f->out);
    f->out = NULL;
    unlink(f->next);
    return 0;
}

void cmn_trace_file_close(struct cmn_trace_file *f)
{
    if (f->out) {
        fails(f);
    }
    memset(f, 0, sizeof *f);
}

int cmn_trace_file_begin(struct cmn_trace_file *f, const char *about)
{
    f->events = 0;
    if (begin_file(f)) {
        return -1;
    }
    fprintf(f->out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{%s},\n\"traceEvents\":[", about);
    return 0;
}

int cmn_trace_file_end(struct cmn_trace_file *f)
{
    FILE *out = f->out;

    errno = 0;
    fputs("\n]}\n", out);
    if (ferror(out) || fflush(out)) {
        errno = errno ? errno : EIO;
        return fails(f);
    }
    if (cmn_atomic_commit(fileno(out), f->next, f->name)) {
        return fails(f);
    }
    f->out = NULL;
    return fclose(out) ? fails(f) : 0;
}

/* ---- events ---- */

/* Of process and thread: Perfetto takes 0 for the kernel's idle process. */
enum { FIRST = 1 };

static void separate(struct cmn_trace_file *f)
{
    fputs(f->events++ ? ",\n" : "\n", f->out);
}

/* One "M" event: `value` is the text of what `key` has in its arguments. */
static void describe(struct cmn_trace_file *f, const char *what, int rank, int track,
                     const char *key, const char *value)
{
    separate(f);
    fprintf(f->out,
            "{\"name\":\"%s\",\"ph\":\"M\",\"ts\":0,\"pid\":%d,\"tid\":%d,\"args\":{\"%s\":%s}}",
            what, rank + FIRST, track + FIRST, key, value);
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

/* What the number of a span counts. */
static const char *counted(int what)
{
    switch (what) {
    case CMN_SPAN_FORWARD:
    case CMN_SPAN_BACKWARD:
        return "layer";
    case CMN_SPAN_ENCODE:
        return "piece";
    case CMN_SPAN_EXCHANGE:
    case CMN_SPAN_WAIT:
        return "bucket";
    case CMN_SPAN_STEP:
        return "iteration";
    default:
        return "number";
    }
}

/* Microseconds with three decimals: no digit is lost, and no locale asked for its comma. */
static void time_of(char *text, size_t bytes, int64_t ns)
{
    snprintf(text, bytes, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void span(struct cmn_trace_file *f, const struct cmn_trace_plan *plan, int rank,
                 const struct cmn_event *e)
{
    const char *name = cmn_timeline_name((enum cmn_span_kind)e->what), *layer = "";
    int64_t base = (int64_t)(plan->began * 1e9);
    /* A clock may be read a little too late: nothing is before the training. */
    int64_t begin = e->begin > base ? e->begin - base : 0;
    int64_t end = e->end - base > begin ? e->end - base : begin;
    char at[40], took[40];

    if ((e->what == CMN_SPAN_FORWARD || e->what == CMN_SPAN_BACKWARD) && e->number >= 0 &&
        e->number < plan->layers) {
        layer = plan->layer[e->number];
    }
    time_of(at, sizeof at, begin);
    /* A nanosecond short: viewers add in floating point, and what seems to reach into the next span is not shown. */
    time_of(took, sizeof took, end > begin ? end - begin - 1 : 0);
    separate(f);
    fprintf(f->out, "{\"name\":\"%s", name);
    if (e->number >= 0) {
        fprintf(f->out, " %d", e->number);
    }
    fprintf(f->out, "%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%s,\"dur\":%s,\"pid\":%d,\"tid\":%d",
            layer[0] ? " " : "", layer, name, at, took, rank + FIRST, e->background + FIRST);
    if (e->number >= 0) {
        fprintf(f->out, ",\"args\":{\"%s\":%d}", counted(e->what), e->number);
    }
    fputs("}", f->out);
}

void cmn_trace_file_rank(struct cmn_trace_file *f, const struct cmn_trace_plan *plan,
                         const struct cmn_trace_rank *rank, const struct cmn_event *event)
{
    describe_rank(f, rank);
    for (size_t i = 0; i < rank->events; i++) {
        span(f, plan, rank->rank, &event[i]);
    }
}
