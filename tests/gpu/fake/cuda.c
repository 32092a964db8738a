#include "fake.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

enum { GPUS = 16, PAGE = 4096, ALIGN = 16, POISON = 0xff, STUCK_S = 1, ENDLESS_S = 60 };

static const size_t MEMORY = (size_t)1 << 31; /* of each GPU */

struct fake fake;

/* Bit 62 set: no address of a process. */
static const uintptr_t tag = (uintptr_t)1 << 62;

struct fake_stream {
    int device, priority;
    struct fake_work *first, **end;
    long queued, done;
    struct fake_stream *next; /* of all */
};
struct fake_event {
    struct fake_stream *stream;
    long at;
    int timed, asked; /* asked: since it was recorded */
    double when;      /* it was reached; 0: it is not yet */
};

static struct fake_stream legacy[GPUS], *streams;
static pthread_mutex_t mutex;
static _Thread_local int current = -1; /* what cudaSetDevice chose */
static _Thread_local cudaError_t last;
static atomic_int chosen = -1; /* by any thread */
static uint64_t dice = 1;
/* When a kernel comes for the at-th time (a variable of the environment: number:name): it never ends
 * (FAKE_FROZEN); or this process is stopped (FAKE_STOPPED). */
static struct moment {
    const char *kernel;
    long at;
} frozen, stopped;

/* What the host has waited for, or asked after, so far. Then copies to the GPU on other streams
 * than Darknet's; those of them that another thread asked for than the one that started the
 * process; copies back that nobody waits for; copies from and to memory that is not page-locked.
 * FAKE_WAITS=file: where all that is written at the end. */
enum { TO_GPU, FROM_GPU, A_STREAM, THE_GPU, AN_EVENT, BESIDE, OF_OTHERS, BACK, PAGEABLE, COUNTS };
static atomic_long counts[COUNTS];
static pthread_t first_thread;

/* ---- for all of the stand-in ---- */

__attribute__((destructor)) static void tell_waits(void)
{
    const char *name = getenv("FAKE_WAITS");
    FILE *out = name ? fopen(name, "a") : NULL;

    for (int i = 0; out && current >= 0 && i < COUNTS; i++) {
        fprintf(out, "%ld%c", counts[i], i + 1 < COUNTS ? ' ' : '\n');
    }
    if (out) {
        fclose(out);
    }
}

static struct moment moment_of(const char *variable)
{
    const char *text = getenv(variable), *name = text ? strchr(text, ':') : NULL;

    return name ? (struct moment){name + 1, atol(text)} : (struct moment){NULL, 0};
}

static int has_come(struct moment *m, const char *kernel)
{
    return m->kernel && !strcmp(m->kernel, kernel) && --m->at <= 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *gpus = getenv("FAKE_GPUS"), *seed = getenv("FAKE_SEED");
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &recursive);
    first_thread = pthread_self();
    fake.gpus = gpus ? atoi(gpus) : 0;
    frozen = moment_of("FAKE_FROZEN");
    stopped = moment_of("FAKE_STOPPED");
    dice = seed ? strtoull(seed, NULL, 10) * 2 + 1 : 1;
    for (int i = 0; i < GPUS; i++) {
        legacy[i].device = i;
        legacy[i].end = &legacy[i].first;
    }
}

void fake_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

void fake_die(const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    fputs("stand-in for a GPU: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    abort();
}

unsigned fake_random(unsigned n)
{
    dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(dice >> 33) % n;
}

int fake_current(const char *who)
{
    if (current < 0 && chosen > 0) {
        fake_die("%s on a thread that never called cudaSetDevice: it would use GPU 0, and the "
                 "process uses %d",
                 who, chosen);
    }
    return current < 0 ? 0 : current;
}

/* The slices of a GPU (FAKE_MIG) have names of their own, and one place on the bus. */
int fake_bus(int device)
{
    return getenv("FAKE_MIG") ? fake.hardware : fake.hardware + device;
}

static cudaError_t result(cudaError_t code)
{
    if (code != cudaSuccess) {
        last = code;
    }
    return code;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);

    return memcpy(copy, from, bytes);
}

/* ---- memory ---- */

struct block {
    uintptr_t at; /* as it was handed out */
    size_t bytes, mapped;
    char *map;  /* NULL: somebody else's memory, which cudaHostRegister has locked */
    int device; /* -1: page-locked memory of the CPU */
    struct block *next;
};
static struct block *blocks;
static size_t used[GPUS];

/* The pointer to the block in which these bytes lie, or to NULL. */
static struct block **link_to(const void *p, size_t bytes)
{
    struct block **b = &blocks;
    uintptr_t at = (uintptr_t)p;

    while (*b && !(at >= (*b)->at && at - (*b)->at <= (*b)->bytes &&
                   bytes <= (*b)->bytes - (at - (*b)->at))) {
        b = &(*b)->next;
    }
    return b;
}

static struct block *block_of(const void *p, size_t bytes)
{
    return *link_to(p, bytes);
}

static char *on_cpu(const void *device)
{
    return (char *)((uintptr_t)device & ~tag);
}

void *fake_device(const void *device, size_t bytes, const char *who)
{
    const struct block *b;
    int here = fake_current(who);

    if (!device) {
        return NULL;
    }
    fake_lock();
    b = block_of(device, bytes);
    if (!b && (uintptr_t)device & tag) {
        fake_die("%s: %zu bytes at %p do not lie in a block of the GPU's memory", who, bytes,
                 device);
    }
    if (!b || b->device < 0) {
        fake_die("%s was given the CPU's memory: %p", who, device);
    }
    if (b->device != here) {
        fake_die("%s on GPU %d was given memory of GPU %d", who, here, b->device);
    }
    fake_unlock();
    return on_cpu(device);
}

void fake_members(void *structure, size_t bytes, const char *who)
{
    void **word = structure;

    for (size_t i = 0; i < bytes / sizeof *word; i++) {
        fake_lock();
        if ((uintptr_t)word[i] & tag && block_of(word[i], 0)) {
            word[i] = fake_device(word[i], 0, who);
        }
        fake_unlock();
    }
}

static void insert(const struct block *b)
{
    struct block *mine = copy_of(b, sizeof *b);

    mine->next = blocks;
    blocks = mine;
    fake.alive++;
}

/* Between two pages that nobody may touch, up against the second, and full of NaN. */
static void *new_block(size_t bytes, int device)
{
    size_t inside = (bytes + PAGE) / PAGE * PAGE;
    struct block b = {.bytes = bytes, .mapped = inside + 2 * PAGE, .device = device};

    b.map = mmap(NULL, b.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.map == MAP_FAILED || mprotect(b.map + PAGE, inside, PROT_READ | PROT_WRITE)) {
        fake_die("mmap: %s", strerror(errno));
    }
    memset(b.map + PAGE, POISON, inside);
    b.at = (uintptr_t)b.map + PAGE + (inside - bytes) / ALIGN * ALIGN;
    b.at |= device >= 0 ? tag : 0;
    insert(&b);
    return (void *)b.at;
}

/* What lies between a block and its guards must still be what it was. */
static void check_edges(const struct block *b)
{
    const char *data = on_cpu((void *)b->at), *end = b->map + b->mapped - PAGE;

    for (const char *p = b->map + PAGE; p < end; p++) {
        p = p == data ? data + b->bytes : p;
        if (p < end && (unsigned char)*p != POISON) {
            fake_die("somebody wrote %td bytes %s a block of %zu bytes",
                     p < data ? data - p : p - data - (ptrdiff_t)b->bytes + 1,
                     p < data ? "before" : "behind", b->bytes);
        }
    }
}

static void take_out(struct block **link)
{
    struct block *b = *link;

    *link = b->next;
    free(b);
    fake.alive--;
}

static void end_block(void *memory, int of_gpu, const char *who)
{
    struct block **link = link_to(memory, 0);
    const struct block *b = *link;

    if (!b || b->at != (uintptr_t)memory || (b->device >= 0) != of_gpu || !b->map) {
        fake_die("%s of %p, which is no such block, or was freed", who, memory);
    }
    check_edges(b);
    used[of_gpu ? b->device : 0] -= of_gpu ? b->bytes : 0;
    munmap(b->map, b->mapped);
    take_out(link);
}

static int is_device(const void *address)
{
    const struct block *b = block_of(address, 0);

    return b && b->device >= 0;
}

/* ---- work ---- */

static struct fake_stream *known(cudaStream_t stream, const char *who)
{
    int here = fake_current(who);

    if (!stream || stream == cudaStreamLegacy) {
        return &legacy[here];
    }
    if (stream->device != here) {
        fake_die("%s on GPU %d was given a stream of GPU %d", who, here, stream->device);
    }
    return stream;
}

/* Does what can be done of the first `until` things that were ever queued; stops at what is not
 * yet. */
static void progress(struct fake_stream *s, long until)
{
    while (s->first && s->done < until && s->first->run(s->first)) {
        struct fake_work *work = s->first;
        s->first = work->next;
        s->end = s->first ? s->end : &s->first;
        s->done++;
        free(work);
    }
}

/* Now and then a GPU does something although nobody asks. */
static void perhaps_work(void)
{
    unsigned skip = fake_random(8);

    if (fake_random(4)) {
        return;
    }
    for (struct fake_stream *s = streams; s; s = s->next, skip--) {
        if (skip == 0) {
            progress(s, s->done + 1 + fake_random(4));
            return;
        }
    }
    if ((current >= 0 || chosen < 0) && !fake.no_waits) {
        struct fake_stream *s = &legacy[current < 0 ? 0 : current];
        progress(s, s->done + 1 + fake_random(8));
    }
}

/* Where no stream waits, what the others have to do comes before Darknet's work: what needed that
 * work is wrong each time, not by chance. */
static int comes_last(const struct fake_stream *stream)
{
    int idle = 1;

    if (!fake.no_waits || !stream || stream != &legacy[stream->device]) {
        return 0;
    }
    for (struct fake_stream *s = streams; s; s = s->next) {
        progress(s, LONG_MAX);
        idle &= !s->first;
    }
    return !idle;
}

void fake_queue(cudaStream_t to, const struct fake_work *work)
{
    struct fake_stream *s;
    struct fake_work *mine = malloc(sizeof *mine);

    *mine = *work;
    mine->next = NULL;
    fake_lock();
    s = known(to, work->what);
    *s->end = mine;
    s->end = &mine->next;
    s->queued++;
    perhaps_work();
    fake_unlock();
}

/* All work of the GPU ends before `who` returns. */
static void drain(const char *who)
{
    double began = cmn_clock();
    int here = fake_current(who);

    for (;;) {
        const struct fake_work *left = NULL;
        progress(&legacy[here], LONG_MAX);
        left = legacy[here].first;
        for (struct fake_stream *s = streams; s; s = s->next) {
            if (s->device == here) {
                progress(s, LONG_MAX);
                left = s->first ? s->first : left;
            }
        }
        if (!left) {
            return;
        }
        if (cmn_clock() - began > (fake.stuck ? STUCK_S : ENDLESS_S)) {
            fake_die("%s waits for %s, which does not end", who, left->what);
        }
        fake_unlock();
        sched_yield();
        fake_lock();
    }
}

/* ---- devices and errors ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = fake.gpus;
    return result(fake.gpus ? cudaSuccess : cudaErrorNoDevice);
}

static cudaError_t known_device(int device)
{
    if (fake.gpus == 0) {
        return cudaErrorNoDevice;
    }
    return device >= 0 && device < fake.gpus && device < GPUS ? cudaSuccess
                                                              : cudaErrorInvalidDevice;
}

cudaError_t cudaSetDevice(int device)
{
    if (known_device(device) == cudaSuccess) {
        current = chosen = device;
    }
    return result(known_device(device));
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current < 0 ? 0 : current;
    return result(known_device(*device));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    const char *capability = getenv("FAKE_CAPABILITY");

    memset(properties, 0, sizeof *properties);
    properties->uuid.bytes[15] = (char)(fake.hardware + device);
    properties->pciDomainID = 0x7fff; /* no machine has one: its NUMA nodes say nothing here */
    properties->pciBusID = fake_bus(device);
    properties->multiProcessorCount = 132;
    properties->major = capability ? atoi(capability) : 6;
    return result(known_device(device));
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t was = last;

    last = cudaSuccess;
    return was;
}

const char *cudaGetErrorString(cudaError_t code)
{
    static _Thread_local char text[32];

    snprintf(text, sizeof text, "fake CUDA error %d", (int)code);
    return text;
}

cudaError_t cudaDeviceSynchronize(void)
{
    fake_lock();
    counts[THE_GPU]++;
    drain("cudaDeviceSynchronize");
    fake_unlock();
    return cudaSuccess;
}

/* ---- memory, as CUDA has it ---- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (fake.no_memory || fake.gpus == 0) {
        return result(fake.no_memory ? cudaErrorMemoryAllocation : cudaErrorNoDevice);
    }
    fake_lock();
    drain("cudaMalloc");
    if (bytes > MEMORY - used[fake_current("cudaMalloc")]) {
        fake_unlock();
        return result(cudaErrorMemoryAllocation);
    }
    used[fake_current("cudaMalloc")] += bytes;
    *memory = bytes ? new_block(bytes, fake_current("cudaMalloc")) : NULL;
    fake_unlock();
    return cudaSuccess;
}

static void free_block(void *block, int of_gpu, const char *who)
{
    if (block) {
        fake_lock();
        drain(who);
        end_block(block, of_gpu, who);
        fake_unlock();
    }
}

cudaError_t cudaFree(void *memory)
{
    free_block(memory, 1, "cudaFree");
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *all = MEMORY;
    *left = MEMORY - used[fake_current("cudaMemGetInfo")];
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    fake_lock();
    drain("cudaHostAlloc");
    *memory = new_block(bytes, -1);
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    free_block(memory, 0, "cudaFreeHost");
    return cudaSuccess;
}

/* Whether all of it is mapped. */
static int is_mapped(const struct block *b)
{
    uintptr_t from = b->at / PAGE * PAGE;

    return msync((void *)from, b->at + b->bytes - from, MS_ASYNC) == 0;
}

/* Somebody else's memory; nobody may give it back before cudaHostUnregister. */
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    struct block b = {.at = (uintptr_t)memory, .bytes = bytes, .device = -1};

    (void)flags;
    fake_lock();
    drain("cudaHostRegister");
    if (!bytes || !is_mapped(&b) || (uintptr_t)memory & tag) {
        fake_die("cudaHostRegister of %zu bytes at %p, which are not the CPU's", bytes, memory);
    }
    for (const struct block *other = blocks; other; other = other->next) {
        if (other->at < b.at + bytes && b.at < other->at + other->bytes) {
            fake_die("cudaHostRegister of %p, which is page-locked already", memory);
        }
    }
    insert(&b);
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    struct block **link;

    fake_lock();
    drain("cudaHostUnregister");
    link = link_to(memory, 1);
    if (!*link || (*link)->at != (uintptr_t)memory || (*link)->map || !is_mapped(*link)) {
        fake_die("cudaHostUnregister of %p, which was not registered, or given back before",
                 memory);
    }
    take_out(link);
    fake_unlock();
    return cudaSuccess;
}

static int run_set(struct fake_work *w)
{
    memset(w->to, w->type, w->n);
    return 1;
}

/* Does not wait, as the memory is the GPU's. */
cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    struct fake_work work = {.run = run_set, .what = "cudaMemset", .n = bytes, .type = value};

    if (!is_device(memory)) {
        return result(cudaErrorInvalidValue);
    }
    work.to = fake_device(memory, bytes, work.what);
    fake_queue(cudaStreamLegacy, &work);
    return cudaSuccess;
}

static int run_copy(struct fake_work *w)
{
    memcpy(w->to, w->from, w->n);
    return 1;
}

/* The two sides of a copy. The CPU's is none of the GPU's memory, and page-locked memory must be one
 * block, too. */
static void sides(struct fake_work *w, void *to, const void *from, enum cudaMemcpyKind kind,
                  int locked)
{
    const void *host = kind == cudaMemcpyDeviceToHost ? to : from;
    const struct block *b;

    w->to = kind == cudaMemcpyDeviceToHost ? to : fake_device(to, w->n, w->what);
    w->from = kind == cudaMemcpyHostToDevice ? (void *)from : fake_device(from, w->n, w->what);
    if (kind == cudaMemcpyDeviceToDevice) {
        return;
    }
    fake_lock();
    b = block_of(host, locked ? w->n : 0);
    if ((uintptr_t)host & tag) {
        fake_die("%s was given the GPU's memory for the CPU's: %p", w->what, host);
    }
    if (locked && !b) {
        fake_die("%s of memory that is not page-locked: it would wait", w->what);
    }
    fake_unlock();
}

/* To the GPU: what was copied to page-locked memory, and comes from there. */
static int run_staged(struct fake_work *w)
{
    memcpy(w->to, w->room, w->n);
    free(w->room);
    return 1;
}

/* Waits for Darknet's work, and from the GPU for itself. To the GPU the last bytes come later; between two
 * places of the GPU it waits for nothing. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct fake_work work = {.run = run_copy, .what = "cudaMemcpy", .n = bytes};
    struct fake_stream *s;
    long at; /* so many are waited for */

    if (bytes == 0) {
        return cudaSuccess;
    }
    sides(&work, to, from, kind, 0);
    fake_lock();
    counts[PAGEABLE] += !block_of(to, bytes) || !block_of(from, bytes);
    s = known(cudaStreamLegacy, work.what);
    at = s->queued + (kind != cudaMemcpyHostToDevice);
    if (kind == cudaMemcpyHostToDevice) {
        work.room = copy_of(from, bytes);
        work.run = run_staged;
    }
    fake_queue(cudaStreamLegacy, &work);
    counts[kind == cudaMemcpyHostToDevice ? TO_GPU : FROM_GPU] += kind != cudaMemcpyDeviceToDevice;
    while (kind != cudaMemcpyDeviceToDevice && s->done < at) {
        progress(s, at);
        fake_unlock();
        sched_yield();
        fake_lock();
    }
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct fake_work work = {.run = run_copy, .what = "cudaMemcpyAsync", .n = bytes};

    sides(&work, to, from, kind, 1);
    counts[BACK] += kind == cudaMemcpyDeviceToHost;
    if (kind == cudaMemcpyHostToDevice && stream && stream != cudaStreamLegacy) {
        fake_lock();
        counts[BESIDE]++;
        counts[OF_OTHERS] += !pthread_equal(pthread_self(), first_thread);
        fake_unlock();
    }
    fake_queue(stream, &work);
    return cudaSuccess;
}

static enum cudaMemcpyKind kind_of(const void *to, const void *from)
{
    return !is_device(to)    ? cudaMemcpyDeviceToHost
           : is_device(from) ? cudaMemcpyDeviceToDevice
                             : cudaMemcpyHostToDevice;
}

cudaError_t fake_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                      cudaStream_t stream)
{
    int locked;

    fake_lock();
    kind = kind >= cudaMemcpyHostToDevice && kind <= cudaMemcpyDeviceToDevice ? kind
                                                                              : kind_of(to, from);
    locked = block_of(kind == cudaMemcpyDeviceToHost ? to : from, bytes) != NULL;
    fake_unlock();
    if (locked) {
        return cudaMemcpyAsync(to, from, bytes, kind, stream);
    }
    if (kind == cudaMemcpyDeviceToHost) {
        cudaStreamSynchronize(stream);
        return cudaMemcpy(to, from, bytes, kind);
    }
    fake_later(to, from, bytes / sizeof(float));
    return bytes % sizeof(float) ? result(cudaErrorInvalidValue) : cudaSuccess;
}

static int run_later(struct fake_work *w)
{
    return fake.hangs ? 0 : run_staged(w);
}

void fake_later(float *to, const float *from, size_t n)
{
    struct fake_work work = {.run = run_later, .what = "a late kernel", .n = n * sizeof *to};

    work.to = fake_device(to, work.n, work.what);
    work.room = copy_of(from, work.n);
    fake_queue(cudaStreamLegacy, &work);
}

/* ---- streams and events: those that ended stay until the process ends, as work may refer to
 * them ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct fake_stream *s = calloc(1, sizeof *s);

    s->device = fake_current("cudaStreamCreateWithFlags");
    s->end = &s->first;
    fake_lock();
    s->next = streams;
    streams = s;
    fake.alive++;
    fake_unlock();
    *stream = s;
    return result(flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue);
}

/* Small numbers go first. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t code = cudaStreamCreateWithFlags(stream, flags);

    (*stream)->priority = priority;
    return code;
}

int fake_is_urgent(cudaStream_t stream)
{
    return known(stream, "NCCL")->priority < 0;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    fake.alive--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct fake_stream *s = known(stream, "cudaStreamSynchronize");

    fake_lock();
    counts[A_STREAM]++;
    while (s->first) {
        progress(s, LONG_MAX);
    }
    fake_unlock();
    return cudaSuccess;
}

static int reached(struct fake_stream *stream, long at)
{
    if (stream) {
        progress(stream, at);
    }
    return !stream || stream->done >= at;
}

static int run_wait(struct fake_work *w)
{
    return reached(w->awaited, w->at);
}

/* For what the event was last recorded behind by now: what is recorded later does not count. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct fake_work work = {.run = run_wait, .what = "an event", .awaited = event->stream};

    (void)flags;
    work.at = event->at;
    if (!fake.no_waits) {
        fake_queue(stream, &work);
    }
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    fake_current("cudaEventCreateWithFlags");
    *event = calloc(1, sizeof **event);
    (*event)->timed = !(flags & cudaEventDisableTiming);
    fake.alive++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    fake.alive--;
    return cudaSuccess;
}

static int run_stamp(struct fake_work *w)
{
    cudaEvent_t event = w->to;

    event->when = cmn_clock();
    return 1;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct fake_work work = {.run = run_stamp, .what = "an event", .to = event};
    struct fake_stream *s = known(stream, "cudaEventRecord");

    fake_lock();
    if (event->timed) {
        event->when = 0;
        fake_queue(stream, &work);
    }
    event->stream = s;
    event->asked = 0;
    event->at = s->queued;
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(1e3 * (to->when - from->when));
    return result(from->when > 0 && to->when > 0 ? cudaSuccess : cudaErrorInvalidValue);
}

/* "Not yet" becomes the thread's last error, as in CUDA: who polls clears it. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    int is;

    fake_lock();
    perhaps_work();
    counts[AN_EVENT] += !event->asked;
    event->asked = 1;
    is = fake_random(4) && !comes_last(event->stream) && reached(event->stream, event->at);
    fake_unlock();
    if (is) {
        return cudaSuccess;
    }
    return result(fake.event ? fake.event : cudaErrorNotReady);
}

/* ---- kernels and libraries ---- */

static int run_launch(struct fake_work *w)
{
    struct fake_launch *launch = w->launch;

    if (has_come(&frozen, launch->name)) {
        return 0;
    }
    if (has_come(&stopped, launch->name)) {
        raise(SIGSTOP);
    }
    fake_run(launch);
    launch->release(launch->arguments);
    free(launch);
    return 1;
}

/* What a kernel is called in `name`, which may be a cast of a template's instance. */
static size_t kernel_name(const char **name)
{
    size_t n = 0;

    *name += **name == '(' ? strcspn(*name, ")") + 1 : 0;
    *name += strspn(*name, " *)");
    while ((*name)[n] && !strchr("<,) ", (*name)[n])) {
        n++;
    }
    return n;
}

void fake_load(const char *name)
{
    static char *known[1024];
    size_t n = kernel_name(&name);
    const char *eager = getenv("CUDA_MODULE_LOADING");
    int i = 0, here = fake_current(name);

    fake_lock();
    while (i < 1023 && known[i] && (strncmp(known[i], name, n) || known[i][n])) {
        i++;
    }
    for (struct fake_stream *s = known[i] ? NULL : streams; s; s = s->next) {
        for (const struct fake_work *w = s->first; w && s->device == here; w = w->next) {
            if (w->comm && !(eager && !strcmp(eager, "EAGER"))) {
                fake_die("kernel %s is loaded while %s is under way: that may wait for it, and it "
                         "for this rank",
                         name, w->what);
            }
        }
    }
    known[i] = known[i] ? known[i] : strndup(name, n);
    fake_unlock();
}

void fake_launch(const struct fake_launch *launch)
{
    struct fake_work work = {.run = run_launch, .what = launch->name};
    const dim3 *g = &launch->grid, *b = &launch->block;

    if (!g->x || !g->y || !g->z || !b->x || !b->y || !b->z || g->x > INT_MAX || g->y > 65535 ||
        g->z > 65535 || (size_t)b->x * b->y * b->z > 1024 || b->z > 64) {
        result(cudaErrorInvalidConfiguration);
        launch->release(launch->arguments);
        return;
    }
    fake_load(launch->name);
    work.launch = copy_of(launch, sizeof *launch);
    fake_queue(launch->stream, &work);
}

static int run_call(struct fake_work *w)
{
    void (*run)(void *) = (void (*)(void *))w->from;

    run(w->launch);
    free(w->launch);
    return 1;
}

void fake_call(const char *name, void (*run)(void *arguments), const void *arguments, size_t bytes)
{
    struct fake_work work = {.run = run_call, .what = name, .from = (void *)run};

    work.launch = copy_of(arguments, bytes);
    fake_queue(cudaStreamLegacy, &work);
}

float fake_widen(const void *from, size_t i, int type)
{
    uint32_t bits;
    float value;

    if (type == ncclFloat32) {
        return ((const float *)from)[i];
    }
    if (type == ncclFloat16) {
        return (float)((const _Float16 *)from)[i];
    }
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void fake_narrow(void *to, size_t i, float value, int type)
{
    uint32_t bits;

    if (type == ncclFloat32) {
        ((float *)to)[i] = value;
    } else if (type == ncclFloat16) {
        ((_Float16 *)to)[i] = (_Float16)value;
    } else {
        memcpy(&bits, &value, sizeof bits);
        ((uint16_t *)to)[i] =
            isnan(value) ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
