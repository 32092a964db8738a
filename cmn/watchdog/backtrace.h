/* backtrace: the main thread's stack, for people. Local. */
#ifndef CMN_BACKTRACE_H
#define CMN_BACKTRACE_H

#include <stddef.h>

/* Must be called once, by the main thread. Takes a signal that nobody else uses. */
void cmn_backtrace_open(void);

/* Must be called by another thread. Writes the main thread's stack into `text`, one line for each
 * of up to 24 frames, each after `prefix`. Takes at most a second: a thread that is blocked in the
 * kernel cannot answer, and then the text says so. */
void cmn_backtrace_text(const char *prefix, char *text, size_t bytes);

#endif
