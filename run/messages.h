/* Writes what people read: lines on the standard error, and the journal. All local. */
#ifndef CMN_RUN_MESSAGES_H
#define CMN_RUN_MESSAGES_H

#include <stddef.h>

/* Keeps text for the standard error until it is read: a pipe that nobody reads, or a terminal that
 * Ctrl-S has stopped, holds up neither cmn-run nor the job. Up to 1 MiB waits; more is left out,
 * and a line says how much. */
void cmn_run_stderr_write(const char *text, size_t bytes);

/* Writes what can be written without waiting; returns whether that was all. cmn_signals_wait()
 * calls it, and cmn_wait_until() can. */
int cmn_run_stderr_written(void *unused);

/* Ends cmn-run after what it was asked to print: with status 0, or as cmn_run_fatal() does if the
 * standard output has not taken all of it. */
void cmn_run_printed(void) __attribute__((noreturn));

/* Ends cmn-run with "cmn-run: …" on the standard error and status 1. Only for errors before the
 * first attempt, and when memory is short. */
void cmn_run_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Writes "cmn-run: …" to the standard error. Returns -1, so that a function whose caller continues
 * can end with it. */
int cmn_run_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* realloc() to n items of `size` bytes that never returns NULL; p NULL: a new block. The caller
 * frees. */
void *cmn_run_realloc(void *p, size_t n, size_t size);

/* Appends a line to `file` for every event from now on. Creates it, readable only by its owner;
 * refuses a file that holds something else. Where it cannot be written, this ends cmn-run if
 * somebody has asked for it, and is said in a line otherwise. */
void cmn_journal_open(const char *file, int asked_for);

/* Appends "TIME cmn-run[PID] EVENT TEXT" at once. Line breaks in the text become blanks. A journal
 * that cannot be written is reported once, and the run continues without it. */
void cmn_journal(const char *event, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does the same, and writes "cmn-run: TEXT" to the standard error. */
void cmn_journal_say(const char *event, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
