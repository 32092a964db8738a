/* log: messages of this process, and reasons of failures after which the caller continues. Local,
 * not blocking.
 *
 * A function whose caller can continue returns -1 after cmn_fail(). Whatever ends the job anyway
 * calls cmn_fatal() instead (base/fatal.h). */
#ifndef CMN_LOG_H
#define CMN_LOG_H

#include <stddef.h>

#include "base/clock.h"

/* Sets the rank and host of every later message. `host` is copied. */
void cmn_log_identity(int rank, const char *host);

/* Writes "cmn[rank 3@host2] " to `text`, or "cmn: " before the identity is known. */
void cmn_log_prefix(char *text, size_t bytes);

/* Records this thread's reason of a failure and returns -1, so that a function can end with `return
 * cmn_fail("...")`. */
int cmn_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Does the same for the loss of another rank, a node or the connection to them: another attempt of
 * the job may succeed. */
int cmn_fail_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns whether the thread's last reason is such a loss. */
int cmn_reason_is_loss(void);

/* Returns the thread's last reason, never NULL. It is valid until the thread's next cmn_fail(). */
const char *cmn_reason(void);

/* Puts "<context>: " before the thread's last reason, which stays a loss if it was one, and
 * returns -1. */
int cmn_fail_in(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints one line with the prefix "cmn: " to the standard error on rank 0. Does nothing on other
 * ranks. */
void cmn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Does the same even after cmn_say_nothing(). It is for where a training resumes, and
 * that its first checkpoint is on the disk. */
void cmn_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Does the same as cmn_tell(). It is for what became of people's work. cmn-run gets the line as an
 * event `warning`. */
void cmn_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Thread-safe. The same on any rank, which the line then names: for what only one rank has seen, such
 * as an image of its part of a list. */
void cmn_warn_here(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Turns cmn_say() off (cmn_report=quiet). */
void cmn_say_nothing(void);

/* Replaces by ? each byte that could control a terminal or begin a new line, including C1 controls
 * in UTF-8, and each byte that is not valid UTF-8. Returns `text`. */
char *cmn_printable(char *text);

/* Returns the entry of `words` (n of them) with the smallest edit distance to `word`, or NULL if
 * none is near. */
const char *cmn_nearest(const char *word, const char *const *words, int n);

#endif
