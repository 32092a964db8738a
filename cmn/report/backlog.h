/* A log's record that cannot be written, because the disk is full or for another reason, is tried
 * once more with the next record, and then dropped. Local. */
#ifndef CMN_BACKLOG_H
#define CMN_BACKLOG_H

#include <stddef.h>

struct cmn_backlog {
    /* Appends one record to the log, whole or not at all. 0, or -1 with a reason that names it. */
    int (*append)(void *log, const void *record, size_t bytes);
    void *log;
    void *record; /* of the last row, which could not be written; or NULL */
    size_t bytes;
    long dropped;
    char why[512]; /* the last one was dropped */
    int said;
};

/* Writes the record that waits, if there is one, or drops it. Then writes this one, or lets it wait.
 * A line names file and reason when the first record has to wait, and when the first is dropped. */
void cmn_backlog_add(struct cmn_backlog *b, const void *record, size_t bytes);

/* Tries to write the record that waits for the last time. 0, or -1 with a reason: how many records
 * are lost. */
int cmn_backlog_close(struct cmn_backlog *b);

#endif
