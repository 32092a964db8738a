/* What this process does now, for the watchdog: calls of cmn.h and waits leave their status here,
 * in memory that the ranks of a node share as soon as there is such memory. Everything is local and
 * never blocks; an update is a few stores. Phases and waits are the main thread's: where it is not
 * said otherwise, other threads' are ignored. */
#ifndef CMN_STATUS_H
#define CMN_STATUS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CMN_STATUS_TEXT = 64, CMN_STATUS_DETAIL = 128 };

/* One rank's status. Its main thread writes the first half, its watchdog's thread the second. Each
 * half is aligned to two cache lines, which processors fetch in pairs. */
struct cmn_status {
    _Alignas(128) atomic_uint version; /* of the phase; odd: it is being changed */
    atomic_int waiting;                /* for other ranks */
    _Atomic uint64_t phase[CMN_STATUS_TEXT / 8];
    atomic_int layer, bucket;         /* -1: none */
    atomic_long iteration;            /* -1: none */
    atomic_long exchanges;            /* waits that all ranks come to in the same order */
    atomic_long bytes;                /* that this rank gave to exchanges */
    atomic_ulong progress;            /* updates */
    _Alignas(128) atomic_ulong beats; /* heartbeats of the watchdog's thread */
    atomic_long stalled;              /* milliseconds without progress */
    atomic_int rank, pid;
    atomic_int ended; /* or is about to end, and has said why */
    _Atomic uint64_t detail[CMN_STATUS_DETAIL / 8];
};

/* The phase from which on a rank may end before the others: MPI lets each rank leave once all have
 * entered MPI_Finalize. */
#define CMN_STATUS_END "the end of MPI"

/* ---- updates ---- */

/* The calling thread is the main thread. */
void cmn_status_main(void);

/* Phase `what` begins, in which this rank waits for the others. NULL: it has ended, and the phase
 * of cmn_status_compute() continues. */
void cmn_status_wait(const char *what);

/* Phase `what` begins, which needs no other rank. */
void cmn_status_compute(const char *what);

/* Within the phase a wait for others begins, or ends. Such waits nest. */
void cmn_status_wait_begin(void);
void cmn_status_wait_end(void);

/* Thread-safe. This process is about to end, and knows why. */
void cmn_status_ending(void);

/* Thread-safe. This process makes progress. */
void cmn_status_progress(void);

/* The number of the step that is computed. */
void cmn_status_iteration(long iteration);
/* The layer that is worked on. */
void cmn_status_layer(int layer);
/* The number of a bucket that is given to an exchange; how much is exchanged. */
void cmn_status_bucket(int bucket);
void cmn_status_bytes(size_t bytes);

/* Thread-safe. The calling thread begins to read that file (copied), or NULL: has read it. */
void cmn_status_file(const char *name);

/* Whether a wait of so many seconds is too long. Never while a watchdog looks after this process:
 * it sees which rank makes no progress, and ends the job. */
int cmn_status_timed_out(double seconds, long timeout);

/* ---- for the watchdog ---- */

/* This process's status. */
struct cmn_status *cmn_status_mine(void);

/* Moves it into this memory, which must stay. Called by the main thread. */
void cmn_status_move(struct cmn_status *to);

/* Whether a watchdog looks after this process. */
void cmn_status_watched(int is);

/* The phase as text (CMN_STATUS_TEXT bytes), and the texts that watchdogs leave for each other. Any
 * process. */
void cmn_status_phase(const struct cmn_status *r, char *text);
void cmn_status_store(_Atomic uint64_t *to, const char *text, size_t bytes);
void cmn_status_fetch(const _Atomic uint64_t *from, char *text, size_t bytes);

/* Bytes that the main thread has read and written: a rank that reads a large file makes progress. 0
 * where the kernel does not count. */
unsigned long long cmn_status_io(void);

/* The file that a thread has been reading for the longest time, or "". */
void cmn_status_oldest_file(char *text, size_t bytes);

#endif
