/* Records of a log for which the disk has no room, or that cannot be written for another reason:
 * they wait in memory, and are written, in their order, as soon as that works again. Local. */
#ifndef CMN_BACKLOG_H
#define CMN_BACKLOG_H

#include <stddef.h>

struct cmn_backlog {
    char *name; /* of the log, for messages: "JSON log net.json" */
    /* Appends one record to the log, whole or not at all. 0, or -1 with a reason. */
    int (*append)(void *log, const void *record, size_t bytes);
    void *log;

    struct cmn_record {
        void *data;
        size_t bytes;
    } * record;
    size_t records, room, bytes; /* that wait */
    size_t dropped;              /* records for which there was no memory, either */
    int said;
};

/* Copies the name. `append` and `log` must outlive it. */
void cmn_backlog_open(struct cmn_backlog *b, const char *what, const char *file,
                      int (*append)(void *log, const void *record, size_t bytes), void *log);

/* Writes what waits, and then this record, or lets it wait: a line says so, once. At most 64 MiB
 * wait; what comes then is dropped, and counted. */
void cmn_backlog_add(struct cmn_backlog *b, const void *record, size_t bytes);

/* Tries for the last time, and frees all. 0, or -1 with a reason: how many records are lost. */
int cmn_backlog_close(struct cmn_backlog *b);

#endif
