/* status: what this process does now, for the watchdog. Everything is local and never blocks.
 *
 * Calls of cmn.h and waits leave their status here, in memory that the ranks of a node share as
 * soon as they have such memory. An update is a few stores. Phases and waits are those of the main
 * thread: calls by which other threads would begin or end one are ignored. */
#ifndef CMN_STATUS_H
#define CMN_STATUS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CMN_STATUS_TEXT = 64, CMN_STATUS_DETAIL = 128 };

/* One rank's status. Its main thread writes the first half, and its watchdog's thread the second.
 * Each half is aligned to two cache lines, which processors fetch in pairs. */
struct cmn_status {
    _Alignas(128) atomic_uint version; /* of the phase; odd while it changes */
    atomic_int waiting;                /* 1: it waits for other ranks */
    _Atomic uint64_t phase[CMN_STATUS_TEXT / 8];
    atomic_int layer, bucket;         /* -1: none */
    atomic_long iteration;            /* -1: none */
    atomic_long exchanges;            /* waits that all ranks reach in the same order */
    atomic_long bytes;                /* given to exchanges by this rank */
    atomic_ulong progress;            /* number of updates */
    _Alignas(128) atomic_ulong beats; /* heartbeats of the watchdog's thread */
    atomic_long stalled;              /* milliseconds without progress */
    atomic_int rank, pid;
    atomic_int ended; /* it has ended or will soon, and has said why */
    _Atomic uint64_t detail[CMN_STATUS_DETAIL / 8];
};

/* The phase from which on a rank may end before the others: MPI lets each rank leave once all have
 * entered MPI_Finalize. */
#define CMN_STATUS_END "the end of MPI"

/* ---- updates ---- */

/* Declares the calling thread to be the main thread. */
void cmn_status_main(void);

/* Begins phase `what`, in which this rank waits for the others. NULL ends it, and the phase of
 * cmn_status_compute() continues. */
void cmn_status_wait(const char *what);

/* Begins phase `what`, which needs no other rank. */
void cmn_status_compute(const char *what);

/* Begin and end a wait for others within the phase. Such waits nest. */
void cmn_status_wait_begin(void);
void cmn_status_wait_end(void);

/* Thread-safe. Records that this process is about to end, and knows why. */
void cmn_status_ending(void);

/* Thread-safe. Records that this process makes progress. */
void cmn_status_progress(void);

/* Records the number of the step that is computed. */
void cmn_status_iteration(long iteration);
/* Records the layer that is computed. */
void cmn_status_layer(int layer);
/* Record the number of a bucket that is given to an exchange, and the bytes that are exchanged. */
void cmn_status_bucket(int bucket);
void cmn_status_bytes(size_t bytes);

/* Thread-safe. Records that the calling thread begins to read this file (the name is copied), or
 * with NULL that it has read it. */
void cmn_status_file(const char *name);

/* Returns whether a wait of `seconds` is longer than `timeout`. Never true while a watchdog watches
 * this process: it sees which rank makes no progress, and ends the job. */
int cmn_status_timed_out(double seconds, long timeout);

/* ---- for the watchdog ---- */

/* Returns this process's status. */
struct cmn_status *cmn_status_mine(void);

/* Moves this process's status to `to`, which must stay. Called by the main thread. */
void cmn_status_move(struct cmn_status *to);

/* Records whether a watchdog watches this process. */
void cmn_status_watched(int is);

/* Copy the phase as text (CMN_STATUS_TEXT bytes), and the texts that watchdogs leave for each
 * other. Any process may call them. */
void cmn_status_phase(const struct cmn_status *r, char *text);
void cmn_status_store(_Atomic uint64_t *to, const char *text, size_t bytes);
void cmn_status_fetch(const _Atomic uint64_t *from, char *text, size_t bytes);

/* Returns the bytes that the main thread has read and written, because a rank that reads a large
 * file makes progress; 0 if the kernel does not count them. */
unsigned long long cmn_status_io(void);

/* Writes the name of the file that a thread has been reading for the longest time, or "". */
void cmn_status_oldest_file(char *text, size_t bytes);

#endif
