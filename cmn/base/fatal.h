/* The one way in which a job fails: cmn_fatal() says why in one line and ends every rank. Local,
 * thread-safe, never returns.
 *
 * Functions whose caller can go on return -1 after cmn_fail() instead (base/log.h). */
#ifndef CMN_FATAL_H
#define CMN_FATAL_H

/* Ends the job with status 1: the same command fails the same way again. A message names the
 * object, what is wrong with it and what to do; rank and host are put before it. */
void cmn_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Ends the job with status 75 (EX_TEMPFAIL): another rank, a node or the way to them was lost,
 * and another attempt may succeed. */
void cmn_fatal_lost(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Ends the job with the reason of the last cmn_fail() of this thread, as a loss where it was
 * one. */
void cmn_fatal_reason(void) __attribute__((noreturn));

/* Says how the process ends from here on; `end` must not return. Without one the message goes to
 * the standard error and the process ends with its status; no exit handler runs, since other
 * threads may still compute. */
void cmn_fatal_handler(void (*end)(const char *message, int lost));

enum { CMN_EXIT_WRONG = 1, CMN_EXIT_LOST = 75 };

#endif
