/* fatal: the one way in which a job fails. Local, thread-safe.
 *
 * cmn_fatal() says why in one line and ends every rank; it never returns. A function whose caller
 * can continue returns -1 after cmn_fail() instead (base/log.h). */
#ifndef CMN_FATAL_H
#define CMN_FATAL_H

/* Ends the job with status 1: the same command would fail again in the same way. The message names
 * the object, what is wrong with it and what to do. Rank and host are put in front of it. */
void cmn_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Ends the job with status 75 (EX_TEMPFAIL): another rank, a node or the connection to them was
 * lost, and another attempt may succeed. */
void cmn_fatal_lost(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Ends the job with the reason of this thread's last cmn_fail(), and with status 75 if it was a
 * loss. */
void cmn_fatal_reason(void) __attribute__((noreturn));

/* Sets the function that ends the job; `end` must not return. With NULL, the default, the message
 * goes to the standard error and the process ends with its status. No exit handler runs, since
 * other threads may still compute. */
void cmn_fatal_handler(void (*end)(const char *message, int lost));

enum { CMN_EXIT_WRONG = 1, CMN_EXIT_LOST = 75 };

#endif
