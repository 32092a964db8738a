#include "mpi/device.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#ifdef GPU
#include <cuda_runtime.h>
#else
#include "mpi/without_cuda.h"
#endif

#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"

/* Bytes of a GPU's UUID. It identifies a GPU; the number of a GPU may differ from process to
 * process. */
enum { ID = 16 };

int cmn_device_built(void)
{
#ifdef GPU
    return 1;
#else
    return 0;
#endif
}

int cmn_device_check(int code, const char *what)
{
    if (code == cudaSuccess) {
        return 0;
    }
    /* Clears the error, which Darknet's next check would take for its own. */
    cudaGetLastError();
    return cmn_fail("%s: %s", what, cudaGetErrorString((cudaError_t)code));
}

int cmn_device_count(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return n;
}

static int identify(int device, char id[ID])
{
    struct cudaDeviceProp properties = {0};

    if (cmn_device_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties")) {
        return -1;
    }
    _Static_assert(sizeof properties.uuid == ID, "a UUID has 16 bytes");
    memcpy(id, &properties.uuid, ID);
    return 0;
}

int cmn_device_capability(int device)
{
    struct cudaDeviceProp properties = {0};

    return cmn_device_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties")
               ? 0
               : properties.major;
}

int cmn_device_memory(float **memory, size_t floats)
{
    void *block = NULL;

    if (cmn_device_check(cudaMalloc(&block, floats * sizeof **memory), "cudaMalloc")) {
        return cmn_fail_in("%zu floats on the GPU", floats);
    }
    if (cmn_device_check(cudaMemset(block, 0, floats * sizeof **memory), "cudaMemset") ||
        cmn_device_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) {
        cudaFree(block);
        return -1;
    }
    *memory = block;
    return 0;
}

void cmn_device_free(float *memory)
{
    cudaFree(memory);
}

int cmn_device_host_memory(float **memory, size_t floats)
{
    if (cmn_device_check(
            cudaHostAlloc((void **)memory, floats * sizeof **memory, cudaHostAllocDefault),
            "cudaHostAlloc")) {
        return cmn_fail_in("%zu floats of page-locked memory", floats);
    }
    memset(*memory, 0, floats * sizeof **memory);
    return 0;
}

void cmn_device_host_free(float *memory)
{
    cudaFreeHost(memory);
}

int cmn_device_lock(float *memory, size_t floats)
{
    return cmn_device_check(
        cudaHostRegister(memory, floats * sizeof *memory, cudaHostRegisterDefault),
        "cudaHostRegister");
}

void cmn_device_unlock(float *memory)
{
    cudaHostUnregister(memory);
}

void *cmn_device_stream(void)
{
    return cudaStreamLegacy;
}

/* Synchronises, because cudaMemcpy may return before its last bytes are on the GPU, and is ordered
 * only with Darknet's own stream. */
static int copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    if (cmn_device_check(cudaMemcpy(to, from, n * sizeof(float), kind), "cudaMemcpy")) {
        return -1;
    }
    return cmn_device_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

int cmn_device_write(float *device, const float *host, size_t n)
{
    return copy(device, host, n, cudaMemcpyHostToDevice);
}

int cmn_device_read(float *host, const float *device, size_t n)
{
    return copy(host, device, n, cudaMemcpyDeviceToHost);
}

int cmn_device_copy(float *device, const float *from_device, size_t n)
{
    return cmn_device_check(cudaMemcpyAsync(device, from_device, n * sizeof(float),
                                            cudaMemcpyDeviceToDevice, cudaStreamLegacy),
                            "cudaMemcpyAsync");
}

/* cudaMemset does not make the host wait if the memory is the GPU's. */
int cmn_device_zero(float *device, size_t n)
{
    return cmn_device_check(cudaMemset(device, 0, n * sizeof(float)), "cudaMemset");
}

int cmn_device_reached(void *event)
{
    cudaError_t code = cudaEventQuery((cudaEvent_t)event);

    if (code == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    return cmn_device_check(code, "cudaEventQuery") ? -1 : 1;
}

int cmn_device_stream_open(void **stream)
{
    return cmn_device_check(
        cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking),
        "cudaStreamCreate");
}

void cmn_device_stream_close(void *stream)
{
    if (stream) {
        cudaStreamDestroy((cudaStream_t)stream);
    }
}

/* Records the event, which it creates if it is NULL, on a stream. */
static int record(void **event, void *stream)
{
    if (!*event &&
        cmn_device_check(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming),
                         "cudaEventCreate")) {
        return -1;
    }
    return cmn_device_check(cudaEventRecord((cudaEvent_t)*event, (cudaStream_t)stream),
                            "cudaEventRecord");
}

int cmn_device_follow(void *stream, void *other)
{
    void *event = NULL;
    int failed = record(&event, other) ||
                 cmn_device_check(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                                  "cudaStreamWaitEvent");

    cmn_device_event_close(event); /* The stream still waits for it. */
    return failed ? -1 : 0;
}

int cmn_device_copy_beside(void *stream, float *to, const float *from, size_t n, int to_host,
                           void **event)
{
    return cmn_device_check(
               cudaMemcpyAsync(to, from, n * sizeof *to,
                               to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                               (cudaStream_t)stream),
               "cudaMemcpyAsync") ||
                   record(event, stream)
               ? -1
               : 0;
}

void cmn_device_event_close(void *event)
{
    if (event) {
        cudaEventDestroy((cudaEvent_t)event);
    }
}

struct cmn_device_mail {
    float *locked;         /* floats that are sent, followed by floats that are received */
    size_t floats;         /* floats of each of the two */
    void *stream;          /* only for cmn_device_mail_fetch() */
    void *sent, *answered; /* events, reached when the copy has ended; NULL before the first one */
};

int cmn_device_mail_open(struct cmn_device_mail **mail, size_t floats)
{
    struct cmn_device_mail *m = *mail = cmn_calloc(1, sizeof *m);

    m->floats = floats;
    return cmn_device_host_memory(&m->locked, 2 * floats) || cmn_device_stream_open(&m->stream) ? -1
                                                                                                : 0;
}

void cmn_device_mail_close(struct cmn_device_mail *m)
{
    if (m) {
        cmn_device_stream_close(m->stream);
        cmn_device_event_close(m->sent);
        cmn_device_event_close(m->answered);
        cmn_device_host_free(m->locked);
        free(m);
    }
}

/* Calls work(self), unless work is NULL, again and again until the GPU has reached the event. */
static int await_event(void *event, void (*work)(void *self), void *self)
{
    int is = 0;

    while (!is) {
        if (work) {
            work(self);
        }
        is = cmn_device_reached(event);
        if (!is) {
            sched_yield();
        }
    }
    return is < 0 ? -1 : 0;
}

int cmn_device_mail_send(struct cmn_device_mail *m, float *device, const float *host, size_t n)
{
    if (m->sent && await_event(m->sent, NULL, NULL)) {
        return -1;
    }
    memcpy(m->locked, host, n * sizeof *host);
    return cmn_device_copy_beside(cudaStreamLegacy, device, m->locked, n, 0, &m->sent);
}

int cmn_device_mail_fetch(struct cmn_device_mail *m, float *host, const float *device, size_t n)
{
    float *locked = m->locked + m->floats;

    if (cmn_device_check(cudaMemcpyAsync(locked, device, n * sizeof *host, cudaMemcpyDeviceToHost,
                                         (cudaStream_t)m->stream),
                         "cudaMemcpyAsync") ||
        cmn_device_check(cudaStreamSynchronize((cudaStream_t)m->stream), "cudaStreamSynchronize")) {
        return -1;
    }
    memcpy(host, locked, n * sizeof *host);
    return 0;
}

int cmn_device_mail_ask(struct cmn_device_mail *m, float *device, size_t n)
{
    return cmn_device_copy_beside(cudaStreamLegacy, m->locked + m->floats, device, n, 1,
                                  &m->answered) ||
                   cmn_device_zero(device, n)
               ? -1
               : 0;
}

const float *cmn_device_mail_answer(struct cmn_device_mail *m)
{
    return m->answered && await_event(m->answered, NULL, NULL) ? NULL : m->locked + m->floats;
}

static int wait_on(void *stream, void (*work)(void *self), void *self)
{
    void *event = NULL;
    int failed = record(&event, stream) || await_event(event, work, self);

    cmn_device_event_close(event);
    return failed ? -1 : 0;
}

int cmn_device_wait(void (*work)(void *self), void *self)
{
    return wait_on(cudaStreamLegacy, work, self);
}

int cmn_device_wait_for(void *stream)
{
    return wait_on(stream, NULL, NULL);
}

/* Returns the first other rank of this node that uses the same GPU, or -1. */
static int find_sharer(const struct cmn_topology *t, const char *ids)
{
    for (int i = 0; i < t->intra_size; i++) {
        if (i != t->intra_rank &&
            !memcmp(ids + (size_t)i * ID, ids + (size_t)t->intra_rank * ID, ID)) {
            return i;
        }
    }
    return -1;
}

/* Ends the job if two ranks of a node use the same GPU, unless CMN_DEBUG_SHARE_GPUS is set. Returns
 * whether any ranks share a GPU in a way that NCCL would refuse. */
static int find_sharing(const struct cmn_topology *t, int device)
{
    char *ids = cmn_calloc((size_t)t->intra_size, ID);
    char mine[ID];
    int sharer, shares;

    if (identify(device, mine)) {
        cmn_fatal_reason();
    }
    MPI_CALL(MPI_Allgather(mine, ID, MPI_BYTE, ids, ID, MPI_BYTE, t->intra));
    sharer = find_sharer(t, ids);
    free(ids);
    shares = sharer >= 0 && !getenv("NCCL_MULTI_RANK_GPU_ENABLE") && !getenv("NCCL_HOSTID");
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &shares, 1, MPI_INT, MPI_MAX, t->world));
    if (sharer >= 0 && !cmn_debug_word("SHARE_GPUS")) {
        cmn_fatal(
            "ranks %d and %d of this node (of %d ranks there) use the same GPU, number %d of %d: "
            "start no more ranks on a node than it has GPUs, or use the CPU with -nogpu",
            t->intra_rank < sharer ? t->intra_rank : sharer,
            t->intra_rank < sharer ? sharer : t->intra_rank, t->intra_size, device,
            cmn_device_count());
    }
    return shares;
}

void cmn_device_agree(struct cmn_topology *t, int device)
{
    int uses[2] = {device >= 0, device < 0}; /* whether any rank uses a GPU, and the CPU */

    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, uses, 2, MPI_INT, MPI_MAX, t->world));
    if (uses[0] && uses[1]) {
        cmn_fatal("some ranks use a GPU and some the CPU, this one %s: give -nogpu to all "
                  "ranks or to none",
                  device < 0 ? "the CPU" : "a GPU");
    }
    t->shares_gpus = device >= 0 && find_sharing(t, device);
    t->device = device;
}
