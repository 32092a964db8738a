#include "event.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "messages.h"

/* The first letter of the marker stands nowhere else in it: after a mismatch a match can only begin
 * anew. */
static char marker[48];

void cmn_event_open(void)
{
    uint64_t token;

    unsetenv("OMPI_CMN_REACHED"); /* it is that of another run, which has started this one */
    if (getrandom(&token, sizeof token, 0) != sizeof token) {
        cmn_run_fatal("no random number: %s", strerror(errno));
    }
    snprintf(marker, sizeof marker, "cmn-event:%020" PRIu64 " ", token);
    setenv("OMPI_CMN_EVENT_TOKEN", strndupa(marker + strlen("cmn-event:"), 20), 1);
}

static int copy_text(const cJSON *object, const char *name, char *to, size_t bytes)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    if (!cJSON_IsString(item)) {
        return -1;
    }
    snprintf(to, bytes, "%s", item->valuestring);
    return 0;
}

/* Returns 0, or -1 if two lines became one on the way, or the line was cut. */
static int parse(const char *json, struct cmn_event *e)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(object, "rank");
    const cJSON *iteration = cJSON_GetObjectItemCaseSensitive(object, "iteration");
    int bad = !cJSON_IsNumber(rank) || !cJSON_IsNumber(iteration) ||
              copy_text(object, "kind", e->kind, sizeof e->kind) ||
              copy_text(object, "host", e->host, sizeof e->host) ||
              copy_text(object, "text", e->text, sizeof e->text);

    if (!bad) {
        e->rank = rank->valueint;
        e->iteration = (long)iteration->valuedouble;
    }
    cJSON_Delete(object);
    return bad ? -1 : 0;
}

static enum cmn_filtered end_event(struct cmn_event_filter *f, char *text, size_t *length,
                                   struct cmn_event *event)
{
    f->inside = 0;
    f->json[f->n] = '\0';
    if (!parse(f->json, event)) {
        return CMN_AN_EVENT;
    }
    /* Another rank's text may have come between: it is shown. */
    memcpy(text, f->json, f->n);
    text[f->n] = '\n';
    *length = f->n + 1;
    return CMN_TEXT;
}

enum cmn_filtered cmn_event_filter(struct cmn_event_filter *f, char byte, char *text,
                                   size_t *length, struct cmn_event *event)
{
    *length = 0;
    if (f->inside) {
        if (byte == '\n' || f->n + 2 == sizeof f->json) {
            return end_event(f, text, length, event);
        }
        f->json[f->n++] = byte;
        return CMN_TEXT;
    }
    if (byte == marker[f->matched]) {
        f->inside = !marker[++f->matched];
        if (f->inside) {
            f->matched = f->n = 0;
        }
        return CMN_TEXT;
    }
    memcpy(text, marker, f->matched);
    *length = f->matched;
    f->matched = byte == marker[0];
    if (!f->matched) {
        text[(*length)++] = byte;
    }
    return CMN_TEXT;
}

size_t cmn_event_filter_end(struct cmn_event_filter *f, char *text)
{
    size_t n = f->inside ? f->n : f->matched;

    memcpy(text, f->inside ? f->json : marker, n);
    *f = (struct cmn_event_filter){0};
    return n;
}
