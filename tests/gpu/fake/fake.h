/* The stand-in for a GPU and NCCL, as tests steer it. What it is strict about: tests/gpu/README.md. */
#ifndef TESTS_FAKE_H
#define TESTS_FAKE_H

#include <stddef.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line on stderr, and abort(). */
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where the CPU finds `bytes` of the current GPU's memory; dies unless they lie in one block of
 * it. `who` is given them. NULL for NULL. */
void *fake_device(const void *device, size_t bytes, const char *who);

/* The same for each pointer to the GPU's memory in a structure of so many bytes. */
void fake_members(void *structure, size_t bytes, const char *who);

/* Queues a kernel for the legacy stream, or another: threads(arguments) runs CUDA threads as long
 * as fake_next_thread() says so, release(arguments) ends it. Rounds of __syncthreads() are between
 * them. */
struct fake_launch {
    const char *name;
    dim3 grid, block;
    cudaStream_t stream;
    void (*threads)(void *arguments), (*release)(void *arguments);
    void *arguments;
};
void fake_launch(const struct fake_launch *launch);

/* A kernel comes to the GPU with its first launch, or here (cudaFuncGetAttributes): dies when NCCL
 * has work there, unless CUDA_MODULE_LOADING=EAGER has brought all of them at the start. */
void fake_load(const char *name);
int fake_next_thread(void);
void fake_barrier(void);

/* Queues a function of a library for the legacy stream: run(arguments) on a copy of them. */
void fake_call(const char *name, void (*run)(void *arguments), const void *arguments, size_t bytes);

/* 16 bits to a float and back; `type` is NCCL's. */
float fake_widen(const void *from, size_t i, int type);
void fake_narrow(void *to, size_t i, float value, int type);

#ifdef __cplusplus
}
#else

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include <nccl.h>

/* What goes wrong, or is as it is on some machines. All 0: nothing. */
struct fake {
    int gpus;               /* that this process sees */
    char hardware;          /* the last byte of the names of its GPUs is this plus their number */
    int stuck;              /* operations of NCCL never end */
    int hangs;              /* nor does what fake_later() queues */
    atomic_int abort_hangs; /* nor does ncclCommAbort */
    ncclResult_t state;     /* what NCCL says it has run into */
    int calls_to_failure;   /* after so many questions for its state; 0: at once */
    cudaError_t event;      /* what cudaEventQuery says */
    int no_memory;          /* cudaMalloc fails */
    int no_waits;           /* no stream waits for another one's event: tests must fail then */

    /* Threads of the program count these, too. */
    atomic_int alive;  /* blocks, streams, events, communicators that were not given back */
    atomic_int aborts; /* calls of ncclCommAbort */
};
extern struct fake fake;

/* Collective. Before anything else here: NCCL's messages go over a copy of `world`. */
void fake_start(MPI_Comm world);
void fake_end(void);

/* Work of Darknet's: n floats of `from` (the CPU's, copied here) will have come to `to` (the
 * GPU's) when its own stream is next waited for. */
void fake_later(float *to, const float *from, size_t n);

/* cudaMemcpyAsync for AlexeyAB's Darknet (alexeyab/cuda.h). */
cudaError_t fake_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                      cudaStream_t stream);

/* Between the files: work on a stream. `run` returns whether it is done; it is asked until it
 * is. */
struct fake_work {
    int (*run)(struct fake_work *work);
    const char *what;
    void *to, *from; /* the CPU's addresses */
    size_t n;
    int type;    /* of NCCL's numbers; the value of a memset */
    int gathers; /* NCCL's allgather, or else its allreduce */
    long number; /* of the communicator's calls */
    struct fake_comm *comm;
    cudaStream_t awaited; /* until so many things queued there are done */
    long at;
    MPI_Request request;
    int started;
    float *room;
    void *launch;
    struct fake_work *next;
};
void fake_queue(cudaStream_t stream, const struct fake_work *work);

/* One thread at a time is inside of the stand-in; the lock counts. */
void fake_lock(void);
void fake_unlock(void);

/* Whether the stream goes before others. */
int fake_is_urgent(cudaStream_t stream);

/* A handle of a library belongs to a GPU; dies on another one (libraries.c). */
void fake_require_device(int device, const char *who);

/* The next random number below n. */
unsigned fake_random(unsigned n);

/* The current GPU of this thread, -1 where there is none: a thread that never chose one in a process
 * that did dies. Its place on the bus. */
int fake_current(const char *who);
int fake_bus(int device);

/* Runs a kernel to its end (launch.c). */
void fake_run(const struct fake_launch *launch);

#endif

#endif
