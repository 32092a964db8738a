/* A backlog keeps the one record of a log that could not be written, e.g. because the disk is full.
 * The record is tried once more with the next one, and then dropped. Local. */
#ifndef CMN_BACKLOG_H
#define CMN_BACKLOG_H

#include <stddef.h>

struct cmn_backlog {
    /* Appends one record to the log, whole or not at all. 0, or -1 with a reason that names the
     * log. */
    int (*append)(struct cmn_backlog *b, const void *record, size_t bytes);
    char *file;   /* name of the log, owned by the backlog */
    int fd;       /* closed by the backlog; -1: not opened */
    void *record; /* the waiting record, owned by the backlog; NULL: none waits */
    size_t bytes;
    long dropped;
    char why[512]; /* reason of the last drop */
    int said;      /* a warning has said that a record waits */
};

/* First writes the waiting record, if there is one, or drops it. Then writes this record, or keeps
 * a copy of it as the waiting one. Warns with file and reason when the first record has to wait,
 * and when the first one is dropped. */
void cmn_backlog_add(struct cmn_backlog *b, const void *record, size_t bytes);

/* Tries to write the waiting record for the last time, and closes the log. 0, or -1 with a reason
 * that says how many records are lost. */
int cmn_backlog_close(struct cmn_backlog *b);

#endif
