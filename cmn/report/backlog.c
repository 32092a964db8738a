#include "report/backlog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

/* Tries the waiting record again. Returns -1 if it is dropped. */
static int retry(struct cmn_backlog *b)
{
    int result = b->record ? b->append(b, b->record, b->bytes) : 0;

    free(b->record);
    b->record = NULL;
    if (result) {
        b->dropped++;
        snprintf(b->why, sizeof b->why, "%s", cmn_reason());
    }
    return result;
}

void cmn_backlog_add(struct cmn_backlog *b, const void *record, size_t bytes)
{
    if (retry(b) && b->dropped == 1) {
        cmn_warn("%s; the training continues, and rows are dropped until they can be written",
                 b->why);
    }
    if (!b->append(b, record, bytes)) {
        return;
    }
    if (!b->said++) {
        cmn_warn("%s; the training continues, and the row is tried again with the next one",
                 cmn_reason());
    }
    b->record = memcpy(cmn_malloc(bytes, 1), record, bytes);
    b->bytes = bytes;
}

int cmn_backlog_close(struct cmn_backlog *b)
{
    retry(b);
    if (b->fd >= 0) {
        close(b->fd);
    }
    free(b->file);
    return b->dropped ? cmn_fail("%s: %ld row%s lost", b->why, b->dropped,
                                 b->dropped == 1 ? " is" : "s are")
                      : 0;
}
