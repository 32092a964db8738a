/* Shared by the files of the NCCL transport. Only they include it, in a build with NCCL:
 *
 *   nccl_transport.c   opens and closes the transport
 *   nccl_gather.c      allgathers, ordered with Darknet's own work on the GPU
 *   nccl_background.c  sums while Darknet computes
 *   nccl_memory.c      memory that is registered with NCCL
 *   nccl_slices.c      the NCCL calls that move slices
 *   nccl_comm.c        NCCL's communicator: start, waits, failures, end
 *
 * Each file calls those below it. `c` is the `self` of nccl.h. Errors end the job unless a function
 * says otherwise. */
#ifndef CMN_TRANSPORTS_NCCL_INTERNAL_H
#define CMN_TRANSPORTS_NCCL_INTERNAL_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <stddef.h>

#include "mpi/group.h"
#include "transports/nccl.h"

enum { CMN_NCCL_JOBS = 64 }; /* jobs in the ring: three for each part of a block */

struct block; /* defined in nccl_memory.c */

/* SUM is an allreduce, SCATTER sums each slice at its owner, GATHER copies each slice from its
 * owner to all ranks. */
enum operation { SUM, SCATTER, GATHER };
struct job {
    struct nccl *over; /* the transport whose ranks take part */
    enum operation operation;
    int slices; /* for SCATTER and GATHER */
    float *data;
    size_t n; /* floats; 0: no job */
    enum cmn_dtype type;
    float divisor;            /* for 16-bit types */
    int number;               /* counted from the last cmn_nccl_end() */
    cudaEvent_t ready;        /* reached when this rank's addend is complete */
    cudaEvent_t began, ended; /* only with a timeline: on the stream, around the job */
};

struct nccl {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t done; /* recorded behind everything that was begun */
    int aborted;      /* the communicator was aborted */
    int hung;         /* it could not be aborted: its kernels may stay on the GPU for ever */

    char what[64]; /* the current operation, for messages */
    double began;  /* when it began, in seconds (cmn_clock) */

    struct job job[CMN_NCCL_JOBS]; /* a ring buffer */
    int first, waiting;            /* the jobs not yet given to NCCL: ring index, count */
    int given;           /* job[given] was given, but NCCL has not accepted it; -1: none */
    int base, begun;     /* jobs since the last end: ring index of the first, count */
    cudaEvent_t last;    /* only with a timeline: recorded behind all jobs */
    size_t floats;       /* of all jobs since the last end */
    struct block *block; /* blocks that are registered with NCCL, or freed at the end */
    /* The gradients cast to 16 bits: room for half_room numbers, in one of the blocks. */
    void *half;
    size_t half_room;
    struct gather {
        cudaEvent_t ready, done;
    } * gather;                /* gathers since the last cmn_nccl_gathered() */
    int gathers, gathers_room; /* their number; entries that have events */
    /* Another transport whose communicator also runs on this one's stream, or NULL. */
    struct nccl *partner;
    struct nccl *next; /* list of this process's transports */
};

static inline void cmn_nccl_destroy(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

/* ---- nccl_comm.c ---- */

/* A list, linked by `next`, of the transports with a communicator. */
extern struct nccl *cmn_nccl_opened;

/* Collective over the group, blocking. Creates NCCL's communicator. Returns 0, or -1 with a
 * reason. */
int cmn_nccl_connect(struct nccl *c);

/* Collective, blocking. Ends the communicator, unless it was aborted. */
void cmn_nccl_disconnect(struct nccl *c);

/* Local. Names the operation on n floats that begins, and starts the clock of cmn_timeout. */
void cmn_nccl_start(struct nccl *c, const char *what, size_t n);

/* Local. Returns whether the code means neither success nor "in progress". */
int cmn_nccl_is_error(ncclResult_t code);

/* Local. Ends the job if the code is an error. */
void cmn_nccl_check(struct nccl *c, ncclResult_t code);
void cmn_nccl_check_cuda(struct nccl *c, cudaError_t code, const char *call);

/* Local. Adds operation and rank to the recorded reason (cmn_fail()), aborts the communicator, and
 * returns -1. */
int cmn_nccl_failed(struct nccl *c);

/* Local, not blocking. Returns NCCL's state: ncclInProgress until it has accepted the last call,
 * then ncclSuccess, or an error. */
ncclResult_t cmn_nccl_state(struct nccl *c);

/* Blocks until NCCL has accepted the last call, which returned `code`. Only then is the operation
 * on the stream, in front of whatever is queued next. Returns ncclSuccess or an error. */
ncclResult_t cmn_nccl_await_taken(struct nccl *c, ncclResult_t code);

/* Local, not blocking. Returns whether the GPU has reached the event. */
int cmn_nccl_reached(struct nccl *c, cudaEvent_t event);

/* Blocks until the GPU has reached the event, and calls idle(idler), if it is not NULL, while it
 * waits. */
void cmn_nccl_await_event(struct nccl *c, cudaEvent_t event, void (*idle)(void *self), void *idler);

/* Blocks until all work on the stream is done. */
void cmn_nccl_await_stream(struct nccl *c);

/* ---- nccl_slices.c ---- */

/* Collective, not blocking. Queues what cmn_nccl_begin_slices() describes, and returns NCCL's
 * answer. */
ncclResult_t cmn_nccl_queue_slices(struct nccl *c, float *data, size_t n, int slices, int sum);

/* ---- nccl_memory.c ---- */

/* Local, blocking. Replaces c->half by a block for n numbers of this 16-bit type, and loads the
 * casts. Nothing may use the old block any more. */
void cmn_nccl_new_half(struct nccl *c, size_t n, enum cmn_dtype type);

/* Local. forget deregisters the blocks, before the communicator ends; free frees them,
 * afterwards. */
void cmn_nccl_forget_blocks(struct nccl *c);
void cmn_nccl_free_blocks(struct nccl *c);

/* ---- nccl_background.c ---- */

/* Gives NCCL jobs until at most `left` of them wait. With `wait` it blocks until NCCL accepts them;
 * without, it returns as soon as NCCL is busy. */
void cmn_nccl_advance(struct nccl *c, int wait, int left);

/* Local. Frees the jobs' events, at close. */
void cmn_nccl_free_jobs(struct nccl *c);

/* ---- nccl_gather.c ---- */

/* Local. Frees the gathers and their events, at close. */
void cmn_nccl_free_gathers(struct nccl *c);

#endif
