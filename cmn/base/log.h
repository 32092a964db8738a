/* Messages of this process, and reasons of failures after which the caller goes on. Local, not
 * blocking.
 *
 * A function whose caller can go on returns -1 after cmn_fail(). Whatever ends the job anyway
 * calls cmn_fatal() instead (base/fatal.h). */
#ifndef CMN_LOG_H
#define CMN_LOG_H

#include <stddef.h>

#include "base/clock.h"

/* Names this process in every later message. `host` is copied. */
void cmn_log_identity(int rank, const char *host);

/* Writes "cmn[rank 3@host2] " to `text`; "cmn: " before the identity is known. */
void cmn_log_prefix(char *text, size_t bytes);

/* Records the reason of a failure (per thread) and returns -1, so that a function can end with
 * `return cmn_fail("...")`. */
int cmn_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for the loss of another rank, a node or the way to them: another attempt of the job
 * may succeed. */
int cmn_fail_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether the thread's last reason is such a loss. */
int cmn_reason_is_loss(void);

/* The thread's last reason; never NULL. Valid until the thread's next cmn_fail(). */
const char *cmn_reason(void);

/* Puts "<context>: " before the thread's last reason, which stays a loss if it was one, and
 * returns -1. */
int cmn_fail_in(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints one line to the standard error on rank 0, with the prefix "cmn: "; nothing on other
 * ranks. */
void cmn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same even when cmn_say() is off: what became of people's work, and where a training
 * resumes. cmn-run gets it as an event "warning". */
void cmn_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Turns cmn_say() off (cmn_report=quiet). */
void cmn_say_nothing(void);

/* Puts a ? in the place of each byte that could control a terminal or begin a new line, C1 in UTF-8
 * among them, or that is no UTF-8. Returns text. */
char *cmn_printable(char *text);

/* The entry of `words` (n of them) with the smallest edit distance to `word`, or NULL when none
 * is near. */
const char *cmn_nearest(const char *word, const char *const *words, int n);

#endif
