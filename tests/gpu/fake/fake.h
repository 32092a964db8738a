/* The stand-in for a GPU and NCCL, as tests steer it.
 *
 * Memory of the GPU has addresses that the CPU cannot use: whoever touches it dies of SIGSEGV.
 * Work on a stream is done when somebody asks after an event behind it, not before; NCCL takes
 * an operation only after it was asked for its state a few times; in which order it adds depends
 * on where a float lies in a call. So code that does not wait, or waits for the wrong thing,
 * gives wrong sums. */
#ifndef TESTS_FAKE_H
#define TESTS_FAKE_H

#include <mpi.h>
#include <stddef.h>

#include <nccl.h>

/* What goes wrong, or is as it is on some machines. All 0: nothing. */
struct fake {
    int gpus;             /* that this process sees */
    char hardware;        /* the last byte of the names of its GPUs is this plus their number */
    int mpi_knows_gpus;   /* MPI is CUDA-aware; then the GPU's addresses are ordinary ones */
    int stuck;            /* operations of NCCL never end */
    int abort_hangs;      /* nor does ncclCommAbort */
    ncclResult_t state;   /* what NCCL says it has run into */
    int calls_to_failure; /* after so many questions for its state; 0: at once */
    cudaError_t event;    /* what cudaEventQuery says */
    int no_memory;        /* cudaMalloc fails */

    int alive;  /* blocks, streams, events and communicators that were not given back */
    int aborts; /* calls of ncclCommAbort */
};
extern struct fake fake;

/* Collective. Before anything else here: NCCL's messages go over a copy of `world`. */
void fake_start(MPI_Comm world);
void fake_end(void);

/* Where the CPU finds memory of the GPU. */
void *fake_address(const void *device);

/* Work of Darknet's: n floats of `from` (the CPU's, copied here) will have come to `to` (the
 * GPU's) when its own stream is next waited for. */
void fake_later(float *to, const float *from, size_t n);

/* Between the two files: work on a stream. `run` returns whether it is done; it is asked until
 * it is. */
struct fake_work {
    int (*run)(struct fake_work *work);
    void *to, *from;
    size_t n;
    int type, root; /* of NCCL; root -1: all */
    int broadcast;
    float factor;
    struct fake_comm *comm;
    cudaStream_t awaited; /* until so many things queued there are done */
    long at;
    MPI_Request request;
    int started;
    float *room;
    struct fake_work *next;
};
void fake_queue(cudaStream_t stream, const struct fake_work *work);

/* 16 bits to a float and back; `type` is NCCL's. */
float fake_widen(const void *from, size_t i, int type);
void fake_narrow(void *to, size_t i, float value, int type);

#endif
