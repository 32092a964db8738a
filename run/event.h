/* Events are lines that the ranks write for cmn-run, among those for people, on the job's standard
 * error.
 *
 *   cmn-event:TOKEN {"kind":"failure","rank":1,"host":"b","phase":"backward","iteration":120,
 *                    "text":"…"}                                                (one line)
 *
 * The ranks find the token, 64 random bits of this run, in OMPI_CMN_EVENT_TOKEN, so no other output
 * is taken for an event by accident. mpiexec exports every variable that begins with OMPI_ to all
 * hosts; -x would not go together with a user's own mca_base_env_list.
 * mpiexec forwards a rank's standard error from any host, so events need no port and no common file
 * system. cmn/base/job_stderr.c writes the lines. All local. */
#ifndef CMN_RUN_EVENT_H
#define CMN_RUN_EVENT_H

#include <stddef.h>

struct cmn_event {
    /* start, training, resume, checkpoint, alive, end, stop, warning, locked, or one that ends the
     * job: start-timeout, failure, error. See cmn/base/job_stderr.h. */
    char kind[16];
    int rank;
    long iteration; /* -1: none yet */
    char host[64], text[1024];
};

/* Draws the token, and exports it to processes that are started from now on. */
void cmn_event_open(void);

/* Separates events from the text for people, byte by byte. */
struct cmn_event_filter {
    size_t matched, n; /* bytes of the marker; of the event behind it */
    int inside;
    char json[4096];
};

enum cmn_filtered {
    CMN_TEXT,    /* text[0..*length) is for people, possibly empty */
    CMN_AN_EVENT /* *event is complete */
};

/* Takes one byte. `text` has room for sizeof json bytes. */
enum cmn_filtered cmn_event_filter(struct cmn_event_filter *f, char byte, char *text,
                                   size_t *length, struct cmn_event *event);

/* Writes what was held back to `text` at the end of the stream, and returns its bytes. */
size_t cmn_event_filter_end(struct cmn_event_filter *f, char *text);

#endif
