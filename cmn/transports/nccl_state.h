/* What the files of transport nccl share: one communicator of NCCL, its stream, and how it is waited for.
 *
 * Nothing here blocks inside NCCL or CUDA: the communicator is non-blocking, and the end of an
 * operation is an event that is asked after, together with NCCL's own state. A dead peer or `cmn_timeout`
 * seconds without an end abort the communicator and end in a reason. */
#ifndef CMN_TRANSPORTS_NCCL_STATE_H
#define CMN_TRANSPORTS_NCCL_STATE_H

#ifdef CMN_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#include <stddef.h>

#include "config/options.h"
#include "transports/transport.h"

/* Sums that may wait in the background; pure_nccl begins fewer in a step. */
enum { CMN_NCCL_JOBS = 32 };

struct cmn_nccl_job {
    float *data;
    size_t n; /* 0: no job */
    enum cmn_dtype type;
    int root;                 /* who gets the sum; -1: all */
    int number;               /* since the last end */
    cudaEvent_t ready;        /* the floats are this rank's addend */
    cudaEvent_t began, ended; /* with a timeline: on the stream, around the sum */
};

/* Zeroed before the transport is opened. */
struct cmn_nccl_state {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t ready, done; /* Darknet's work before an operation; the operation */
    int failed;              /* the communicator is aborted */

    char what[64]; /* the operation that runs, and when it began */
    double begin;

    /* nccl_background.c */
    struct cmn_nccl_job job[CMN_NCCL_JOBS]; /* a ring */
    int first, waiting;                     /* of the ring: not yet given to NCCL */
    int given;                              /* NCCL has not yet taken job[given]; -1: none */
    int base, begun;                        /* since the last end: first of the ring, how many */
    cudaEvent_t last;                       /* with a timeline: behind them */
    size_t floats;
    void *half; /* room for half_room numbers of 16 bits on the GPU */
    size_t half_room;
};

/* All local; those that return int return 0, or -1 with a reason, the communicator aborted then. */

/* An operation on n floats begins: names it for messages, and starts the clock of cmn_timeout. */
int cmn_nccl_starts(struct cmn_nccl_state *c, const char *what, size_t n);

/* What is queued from here on comes after all that Darknet has asked of the GPU. */
int cmn_nccl_orders(struct cmn_nccl_state *c);

/* Blocking, until NCCL has taken what it was given, which returned `code`: only then that lies on the stream, before
 * what comes next. */
int cmn_nccl_taken(struct cmn_nccl_state *c, ncclResult_t code);

/* Not blocking. *state is ncclInProgress until NCCL has taken what it was given. */
int cmn_nccl_ask(struct cmn_nccl_state *c, ncclResult_t *state);

/* Blocking, until all that lies on the stream is done. */
int cmn_nccl_finished(struct cmn_nccl_state *c);

/* Whether a call of NCCL was refused. */
int cmn_nccl_bad(ncclResult_t code);

/* Note the reason, abort the communicator, and return -1. */
int cmn_nccl_failed(struct cmn_nccl_state *c, ncclResult_t code);
int cmn_nccl_failed_cuda(struct cmn_nccl_state *c, int code, const char *call);

/* Gives back what nccl_background.c has taken. */
void cmn_nccl_background_close(struct cmn_nccl_state *c);

#endif
#endif
