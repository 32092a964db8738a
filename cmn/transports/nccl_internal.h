/* What the files of transport nccl have in common; they alone include it, in a build with NCCL.
 *
 *   nccl_transport.c   opens and closes it
 *   nccl_gather.c      allgathers in order with Darknet's own work
 *   nccl_background.c  sums while Darknet computes
 *   nccl_memory.c      memory that NCCL knows
 *   nccl_slices.c      which of NCCL's calls move slices
 *   nccl_comm.c        its communicator: start, waits, failures, end
 *
 * Each calls those below it. `c` is the `self` of nccl.h. What goes wrong ends the job, unless it is said
 * otherwise. */
#ifndef CMN_TRANSPORTS_NCCL_INTERNAL_H
#define CMN_TRANSPORTS_NCCL_INTERNAL_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <stddef.h>

#include "mpi/group.h"
#include "transports/nccl.h"

enum { CMN_NCCL_JOBS = 64 }; /* that may wait in the background: three for each part of a block */

struct block; /* nccl_memory.c */

/* What is done in the background: a sum; or each of some slices goes to its owner as the sum, or from
 * there to all. */
enum operation { SUM, SCATTER, GATHER };
struct job {
    struct nccl *over; /* whose ranks */
    enum operation operation;
    int slices; /* SCATTER, GATHER */
    float *data;
    size_t n; /* floats; 0: no job */
    enum cmn_dtype type;
    float divisor;            /* of 16 bits */
    int number;               /* since the last end */
    cudaEvent_t ready;        /* the floats are this rank's addend */
    cudaEvent_t began, ended; /* with a timeline: on the stream, around the sum */
};

struct nccl {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t done; /* behind all that was begun */
    int aborted;      /* the communicator is */
    int hung;         /* or it could not be: its kernels may be on the GPU for ever */

    char what[64]; /* the operation that runs */
    double began;  /* when (cmn_clock) */

    struct job job[CMN_NCCL_JOBS]; /* a ring */
    int first, waiting;            /* of the ring: not yet given to NCCL */
    int given;                     /* NCCL has not yet taken job[given]; -1: none */
    int base, begun;               /* since the last end: first of the ring, how many */
    cudaEvent_t last;              /* with a timeline: behind them */
    size_t floats;                 /* since the last end */
    struct block *block;           /* all that NCCL was told of, or is to be freed at the end */
    void *half; /* room for half_room numbers of 16 bits on the GPU, one of these */
    size_t half_room;
    struct gather {
        cudaEvent_t ready, done;
    } * gather;                /* since the last wait for them: */
    int gathers, gathers_room; /* so many, and with events */
    struct nccl *partner;      /* its communicator works on this one's stream, too; or NULL */
    struct nccl *next;         /* another one of this process */
};

static inline void cmn_nccl_destroy(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

/* ---- nccl_comm.c ---- */

/* Those with a communicator. */
extern struct nccl *cmn_nccl_opened;

/* Collective over the group, blocking. 0, or -1 with a reason. */
int cmn_nccl_connect(struct nccl *c);

/* Collective, blocking. The end of the communicator, unless it is aborted. */
void cmn_nccl_disconnect(struct nccl *c);

/* Local. Names the operation on n floats that begins, and starts the clock of cmn_timeout. */
void cmn_nccl_start(struct nccl *c, const char *what, size_t n);

/* Local. Neither done nor in progress. */
int cmn_nccl_is_error(ncclResult_t code);

/* Local. Ends the job where it is an error. */
void cmn_nccl_check(struct nccl *c, ncclResult_t code);
void cmn_nccl_check_cuda(struct nccl *c, cudaError_t code, const char *call);

/* Local. Adds operation and rank to the reason that was left (cmn_fail()), aborts the communicator, and
 * returns -1. */
int cmn_nccl_failed(struct nccl *c);

/* Local, not blocking. NCCL's own state: ncclInProgress until it has taken what it was given, ncclSuccess, or
 * an error. */
ncclResult_t cmn_nccl_state(struct nccl *c);

/* Blocking, until NCCL has taken what it was given, which returned `code`: only then that lies on the
 * stream, before what comes next. ncclSuccess, or an error. */
ncclResult_t cmn_nccl_await_taken(struct nccl *c, ncclResult_t code);

/* Local, not blocking. Whether the GPU has reached the event. */
int cmn_nccl_reached(struct nccl *c, cudaEvent_t event);

/* Blocking, until it has; idle(idler), where it is not NULL, is called meanwhile. */
void cmn_nccl_await_event(struct nccl *c, cudaEvent_t event, void (*idle)(void *self), void *idler);

/* Blocking, until all that lies on the stream is done. */
void cmn_nccl_await_stream(struct nccl *c);

/* ---- nccl_slices.c ---- */

/* Collective, not blocking. Each of the slices (cmn_slice) goes to its owner as the sum (`sum`),
 * or from there to all. NCCL's answer. */
ncclResult_t cmn_nccl_queue_slices(struct nccl *c, float *data, size_t n, int slices, int sum);

/* ---- nccl_memory.c ---- */

/* Local, blocking. Other room for n numbers of that type, of 16 bits: nothing uses the one that there
 * was. */
void cmn_nccl_new_half(struct nccl *c, size_t n, enum cmn_dtype type);

/* Local. Before the communicator's end: NCCL forgets the blocks. Behind it: they are freed. */
void cmn_nccl_forget_blocks(struct nccl *c);
void cmn_nccl_free_blocks(struct nccl *c);

/* ---- nccl_background.c ---- */

/* Gives NCCL jobs until at most `left` wait; without `wait` only as long as it takes them at once. */
void cmn_nccl_advance(struct nccl *c, int wait, int left);

/* Local. At close. */
void cmn_nccl_free_jobs(struct nccl *c);

/* ---- nccl_gather.c ---- */

/* Local. At close. */
void cmn_nccl_free_gathers(struct nccl *c);

#endif
