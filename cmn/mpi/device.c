#include "mpi/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"

int cmn_device_built(void)
{
#ifdef GPU
    return 1;
#else
    return 0;
#endif
}

#ifdef GPU

#include <cuda_runtime.h>

int cmn_device_check(int code, const char *what)
{
    if (code == cudaSuccess) {
        return 0;
    }
    /* Clears the error, which Darknet's next check would take for its own. */
    cudaGetLastError();
    return cmn_fail("%s: %s", what, cudaGetErrorString((cudaError_t)code));
}

void cmn_device_need(int code, const char *what)
{
    if (cmn_device_check(code, what)) {
        cmn_fatal_reason();
    }
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

static int describe(int device, struct cudaDeviceProp *properties)
{
    return cmn_device_check(cudaGetDeviceProperties(properties, device), "cudaGetDeviceProperties");
}

int cmn_device_capability(int device)
{
    struct cudaDeviceProp properties;

    return describe(device, &properties) ? 0 : properties.major;
}

/* ---- which GPU a rank takes ---- */

int cmn_device_near(int rank, const int *near_rank, int ranks, const int *near_gpu, int gpus)
{
    char *taken = cmn_calloc((size_t)gpus, 1);
    int *gpu = cmn_calloc((size_t)ranks, sizeof *gpu), chosen;

    memset(gpu, -1, (size_t)ranks * sizeof *gpu);
    for (int anywhere = 0; anywhere < 2; anywhere++) {
        for (int r = 0; r < ranks; r++) {
            for (int g = 0; g < gpus && gpu[r] < 0; g++) {
                if (!taken[g] && (anywhere || (near_rank[r] >= 0 && near_rank[r] == near_gpu[g]))) {
                    gpu[r] = g;
                    taken[g] = 1;
                }
            }
        }
    }
    chosen = gpu[rank] < 0 ? rank % gpus : gpu[rank];
    free(taken);
    free(gpu);
    return chosen;
}

/* Returns the NUMA node of all cores that this process may use, or -1 if they are on several. */
static int own_numa_node(void)
{
    unsigned core, node;
    cpu_set_t cores;
    char name[80];

    if (getcpu(&core, &node) || sched_getaffinity(0, sizeof cores, &cores)) {
        return -1;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/node%u", i, node);
        if (CPU_ISSET(i, &cores) && access(name, F_OK)) {
            return -1;
        }
    }
    return (int)node;
}

/* Returns the NUMA node next to a GPU, or -1 if it is not known. */
static int numa_node_of(int device)
{
    struct cudaDeviceProp it;
    char name[80];
    FILE *in;
    int node = -1;

    if (describe(device, &it)) {
        return -1;
    }
    snprintf(name, sizeof name, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node",
             (unsigned)it.pciDomainID, (unsigned)it.pciBusID, (unsigned)it.pciDeviceID);
    in = fopen(name, "r");
    if (in) {
        node = fscanf(in, "%d", &node) == 1 ? node : -1;
        fclose(in);
    }
    return node;
}

int cmn_device_choose(const struct cmn_topology *t)
{
    int gpus = cmn_device_count(), mine = own_numa_node(), chosen;
    int *rank = cmn_calloc((size_t)t->intra_size, sizeof *rank);
    int *gpu = cmn_calloc((size_t)gpus + 1, sizeof *gpu);

    for (int g = 0; g < gpus; g++) {
        gpu[g] = numa_node_of(g);
    }
    MPI_CALL(MPI_Allgather(&mine, 1, MPI_INT, rank, 1, MPI_INT, t->intra));
    chosen = gpus ? cmn_device_near(t->intra_rank, rank, t->intra_size, gpu, gpus) : 0;
    free(rank);
    free(gpu);
    return chosen;
}

/* ---- memory and copies ---- */

int cmn_device_memory(float **memory, size_t floats)
{
    void *block = NULL;

    if (cmn_device_check(cudaMalloc(&block, floats * sizeof **memory), "cudaMalloc")) {
        return cmn_fail_in("%zu floats on the GPU", floats);
    }
    CMN_CUDA(cudaMemset, block, 0, floats * sizeof **memory);
    CMN_CUDA(cudaDeviceSynchronize);
    *memory = block;
    return 0;
}

void cmn_device_free(float *memory)
{
    cudaFree(memory);
}

int cmn_device_host_memory(float **memory, size_t floats)
{
    size_t bytes = floats * sizeof **memory;

    if (cmn_device_check(cudaHostAlloc((void **)memory, bytes, cudaHostAllocDefault),
                         "cudaHostAlloc")) {
        return cmn_fail_in("%zu floats of page-locked memory", floats);
    }
    memset(*memory, 0, bytes);
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
static void copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    CMN_CUDA(cudaMemcpy, to, from, n * sizeof(float), kind);
    CMN_CUDA(cudaStreamSynchronize, cudaStreamLegacy);
}

void cmn_device_write(float *device, const float *host, size_t n)
{
    copy(device, host, n, cudaMemcpyHostToDevice);
}

void cmn_device_read(float *host, const float *device, size_t n)
{
    copy(host, device, n, cudaMemcpyDeviceToHost);
}

void cmn_device_copy(float *device, const float *from_device, size_t n)
{
    CMN_CUDA(cudaMemcpyAsync, device, from_device, n * sizeof(float), cudaMemcpyDeviceToDevice,
             cudaStreamLegacy);
}

/* cudaMemset does not make the host wait if the memory is the GPU's. */
void cmn_device_zero(float *device, size_t n)
{
    CMN_CUDA(cudaMemset, device, 0, n * sizeof(float));
}

/* ---- streams and events ---- */

void *cmn_device_stream_open(void)
{
    cudaStream_t stream = NULL;
    int least, greatest;

    CMN_CUDA(cudaDeviceGetStreamPriorityRange, &least, &greatest);
    CMN_CUDA(cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking, greatest);
    return stream;
}

void cmn_device_stream_close(void *stream)
{
    if (stream) {
        cudaStreamDestroy(stream);
    }
}

static void *event_open(unsigned flags)
{
    cudaEvent_t event = NULL;

    CMN_CUDA(cudaEventCreateWithFlags, &event, flags);
    return event;
}

void *cmn_device_timer(void)
{
    return event_open(cudaEventDefault);
}

double cmn_device_seconds(void *from, void *to)
{
    float ms;

    CMN_CUDA(cudaEventElapsedTime, &ms, from, to);
    return 1e-3 * (double)ms;
}

void cmn_device_record(void **event, void *stream)
{
    *event = *event ? *event : event_open(cudaEventDisableTiming);
    CMN_CUDA(cudaEventRecord, *event, stream);
}

void cmn_device_event_close(void *event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

int cmn_device_query(void *event)
{
    cudaError_t code = cudaEventQuery(event);

    if (code == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    return cmn_device_check(code, "cudaEventQuery") ? -1 : 1;
}

int cmn_device_reached(void *event)
{
    int is = cmn_device_query(event);

    if (is < 0) {
        cmn_fatal_reason();
    }
    return is;
}

void cmn_device_await(void *event)
{
    while (event && !cmn_device_reached(event)) {
        sched_yield();
    }
}

void cmn_device_wait(void (*work)(void *self), void *self)
{
    void *event = NULL;

    cmn_device_record(&event, cudaStreamLegacy);
    do {
        if (work) {
            work(self);
        }
        sched_yield();
    } while (!cmn_device_reached(event));
    cmn_device_event_close(event);
}

void cmn_device_after(void *stream, void *event)
{
    CMN_CUDA(cudaStreamWaitEvent, stream, event, 0);
}

void cmn_device_follow(void *stream, void *other)
{
    void *event = NULL;

    cmn_device_record(&event, other);
    cmn_device_after(stream, event);
    cmn_device_event_close(event); /* The stream still waits for it. */
}

void cmn_device_copy_beside(void *stream, float *to, const float *from, size_t n, int to_host,
                            void **event)
{
    CMN_CUDA(cudaMemcpyAsync, to, from, n * sizeof *to,
             to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream);
    cmn_device_record(event, stream);
}

/* ---- mails ---- */

void cmn_device_mail_room(struct cmn_device_mail *m, size_t floats)
{
    if (m->room < floats) {
        cmn_device_host_free(m->locked);
        if (cmn_device_host_memory(&m->locked, floats)) {
            cmn_fatal_reason();
        }
        m->room = floats;
    }
}

void cmn_device_mail_close(struct cmn_device_mail *m)
{
    cmn_device_host_free(m->locked);
    cmn_device_event_close(m->arrived);
    *m = (struct cmn_device_mail){0};
}

void cmn_device_mail_send(struct cmn_device_mail *m, float *device, const float *host, size_t n)
{
    cmn_device_await(m->arrived);
    memcpy(m->locked, host, n * sizeof *host);
    cmn_device_copy_beside(cudaStreamLegacy, device, m->locked, n, 0, &m->arrived);
}

void cmn_device_mail_ask(struct cmn_device_mail *m, void *stream, const float *device, size_t n)
{
    cmn_device_copy_beside(stream, m->locked, device, n, 1, &m->arrived);
}

const float *cmn_device_mail_answer(struct cmn_device_mail *m)
{
    cmn_device_await(m->arrived);
    return m->locked;
}

/* ---- whether ranks share a GPU ---- */

/* Ends the job if two ranks of a node use the same GPU, unless CMN_DEBUG_SHARE_GPUS is set. Returns
 * whether any ranks share a GPU in a way that NCCL would refuse. The numbers of a GPU may differ from
 * process to process. A slice of a GPU (MIG) is a GPU with a UUID of its own, but not for NCCL, which
 * knows only the place on the bus, and takes processes with different NCCL_HOSTIDs for ones on
 * different hosts. */
static int find_sharing(const struct cmn_topology *t, int device)
{
    struct cudaDeviceProp *all = cmn_calloc((size_t)t->intra_size, sizeof *all), *mine;
    int shares = 0, same = -1, self = t->intra_rank;

    mine = &all[self];
    if (describe(device, mine)) {
        cmn_fatal_reason();
    }
    MPI_CALL(
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, sizeof *all, MPI_BYTE, t->intra));
    for (int i = t->intra_size - 1; i >= 0; i--) {
        const struct cudaDeviceProp *it = &all[i];
        if (i != self) {
            same = memcmp(&it->uuid, &mine->uuid, sizeof it->uuid) ? same : i;
            shares |= it->pciDomainID == mine->pciDomainID && it->pciBusID == mine->pciBusID &&
                      it->pciDeviceID == mine->pciDeviceID && !getenv("NCCL_HOSTID");
        }
    }
    free(all);
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &shares, 1, MPI_INT, MPI_MAX, t->world));
    if (same >= 0 && !cmn_debug_word("SHARE_GPUS")) {
        cmn_fatal("ranks %d and %d of this node (of %d ranks there) use the same GPU, number %d of "
                  "%d: start no more ranks on a node than it has GPUs, or use the CPU with -nogpu",
                  self < same ? self : same, self < same ? same : self, t->intra_size, device,
                  cmn_device_count());
    }
    return shares;
}

#else

int cmn_device_count(void)
{
    return 0;
}

#endif

void cmn_device_agree(struct cmn_topology *t, int device)
{
    int uses[2] = {device >= 0, device < 0}; /* whether any rank uses a GPU, and the CPU */

    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, uses, 2, MPI_INT, MPI_MAX, t->world));
    if (uses[0] && uses[1]) {
        cmn_fatal("some ranks use a GPU and some the CPU, this one %s: give -nogpu to all "
                  "ranks or to none",
                  device < 0 ? "the CPU" : "a GPU");
    }
#ifdef GPU
    t->shares_gpus = device >= 0 && find_sharing(t, device);
#endif
    t->device = device;
}
