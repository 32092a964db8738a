#include "report/backlog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

static const size_t most = 64 << 20; /* bytes */

void cmn_backlog_open(struct cmn_backlog *b, const char *what, const char *file,
                      int (*append)(void *log, const void *record, size_t bytes), void *log)
{
    memset(b, 0, sizeof *b);
    b->name = cmn_format("%s %s", what, file);
    b->append = append;
    b->log = log;
}

/* Writes what waits. 0, or -1 with a reason: some of it still does. */
static int catch_up(struct cmn_backlog *b)
{
    size_t done = 0, n = b->records;
    int result = 0;

    while (done < n && !(result = b->append(b->log, b->record[done].data, b->record[done].bytes))) {
        b->bytes -= b->record[done].bytes;
        free(b->record[done++].data);
    }
    b->records -= done;
    if (done) {
        memmove(b->record, b->record + done, b->records * sizeof *b->record);
    }
    if (done && !b->records) {
        cmn_warn("%s: the %zu row%s that waited %s written", b->name, n, n == 1 ? "" : "s",
                 n == 1 ? "is" : "are");
    }
    return result;
}

static void keep(struct cmn_backlog *b, const void *record, size_t bytes)
{
    if (bytes > most - b->bytes) {
        b->dropped++;
        return;
    }
    if (b->records == b->room) {
        b->room = 2 * b->room + 64;
        b->record = cmn_realloc(b->record, b->room, sizeof *b->record);
    }
    b->record[b->records].data = memcpy(cmn_malloc(bytes, 1), record, bytes);
    b->record[b->records++].bytes = bytes;
    b->bytes += bytes;
}

void cmn_backlog_add(struct cmn_backlog *b, const void *record, size_t bytes)
{
    if (!catch_up(b) && !b->append(b->log, record, bytes)) {
        return;
    }
    if (!b->said++) {
        cmn_warn("%s; the training continues, and rows wait in memory until they can be written",
                 cmn_reason());
    }
    keep(b, record, bytes);
}

int cmn_backlog_close(struct cmn_backlog *b)
{
    int result = catch_up(b);
    size_t lost = b->records + b->dropped;
    char why[512];

    if (lost) {
        if (!result) {
            cmn_fail("%s: more rows than wait in memory", b->name);
        }
        snprintf(why, sizeof why, "%s", cmn_reason());
        cmn_fail("%s: %zu row%s lost at the end of the training", why, lost,
                 lost == 1 ? " is" : "s are");
    }
    for (size_t i = 0; i < b->records; i++) {
        free(b->record[i].data);
    }
    free(b->record);
    free(b->name);
    memset(b, 0, sizeof *b);
    return lost ? -1 : 0;
}
