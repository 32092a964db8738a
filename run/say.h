/* What people read: lines of our own on the standard error, and the journal. All local. */
#ifndef CMN_RUN_SAY_H
#define CMN_RUN_SAY_H

#include <stddef.h>

/* "cmn-run: …" to the standard error. Returns -1, so that a function can end with it. */
int cmn_run_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The journal `file` gets a line at its end for every event from now on. It is made when it is missing, for its owner alone; one that
 * holds something else is refused. 0, or -1 after saying why. */
int cmn_journal_open(const char *file);

/* An event: "TIME cmn-run[PID] EVENT TEXT" in the journal, at once. Line breaks in the text become blanks. A journal that cannot be written is
 * said once, and is no reason to end. */
void cmn_journal(const char *event, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, and "cmn-run: TEXT" on the standard error. */
void cmn_journal_say(const char *event, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The words of a command in one text, quoted for a shell where they must be. Cut when they are too many. */
void cmn_quote(char *text, size_t bytes, char *const *word);

#endif
