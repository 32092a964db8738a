/* The main thread's stack, for people. Local. */
#ifndef CMN_WATCH_STACK_H
#define CMN_WATCH_STACK_H

#include <stddef.h>

/* Called by the main thread, once: takes a signal that nobody else uses. */
void cmn_backtrace_open(void);

/* Called by another thread. Where the main thread is now, one line for each of up to 24 frames, each after `prefix`: into `text`. At
 * most a second; a thread that stands still in the kernel cannot answer, and then the text says so. */
void cmn_backtrace_text(const char *prefix, char *text, size_t bytes);

#endif
