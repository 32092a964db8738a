/* Messages: who speaks, and why something failed. Everything here is local and does not block.
 *
 * Functions of the module return 0, or -1 after cmn_fail() has noted the reason; only cmn.c turns
 * a reason into the end of the job. */
#ifndef CMN_LOG_H
#define CMN_LOG_H

#include <stddef.h>

#include "base/clock.h"

/* Names this process in every later message. `host` is copied. */
void cmn_log_identity(int rank, const char *host);

/* Writes "cmn[rank 3@host2] " to `text`; "cmn: " before the identity is known. */
void cmn_log_prefix(char *text, size_t bytes);

/* Notes the reason of a failure (per thread) and returns -1, so that a function can end with
 * `return cmn_fail("...")`. */
int cmn_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a failure that is the loss of another rank, a node or the way to them: who starts the job again may have more
 * luck. */
int cmn_fail_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether the last reason noted in this thread is such a loss. */
int cmn_reason_is_loss(void);

/* The last reason noted in this thread; never NULL. Valid until the thread's next cmn_fail(). */
const char *cmn_reason(void);

/* Puts "<context>: " before the reason already noted, which stays a loss if it is one, and returns -1. */
int cmn_fail_in(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line from rank 0 to the standard error, with the prefix "cmn: "; nothing elsewhere. */
void cmn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, also when cmn_say() is off: what became of people's work, and where a training resumes. cmn-run gets it as an event
 * "warning". */
void cmn_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Turns cmn_say() off (cmn_report=quiet). */
void cmn_say_nothing(void);

/* The entry of `words` (n of them) nearest to `word` by edit distance, or NULL when none is near. */
const char *cmn_nearest(const char *word, const char *const *words, int n);

#endif
