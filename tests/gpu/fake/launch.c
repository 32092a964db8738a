/* Runs kernels on the CPU, a CUDA thread after the other, in random order within a block.
 *
 * Threads run in a loop on one fiber. One that comes to a barrier stops there with its fiber, and
 * a new fiber runs the next threads; when none is left, those that stopped go on, in random
 * order. */
#undef _FORTIFY_SOURCE /* its longjmp knows one stack */
#include "fake.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "kernel.h"

enum { STACK = 64 * 1024, FIBERS = 1025 };

dim3 threadIdx, blockIdx, blockDim, gridDim;

struct fiber {
    jmp_buf at;
    ucontext_t context;
    dim3 thread;
    int made;
};
static struct fiber fiber[FIBERS];
static int running, idle[FIBERS], n_idle;
static int waiting[FIBERS], n_waiting; /* at a barrier, for the next round */
static int stopped;                    /* those, and the ones that have not yet gone on */
static jmp_buf scheduler;
static const struct fake_launch *kernel;
static unsigned threads, next, factor, offset; /* of a block; how many have begun; their order */
static int more;                               /* blocks */

/* AddressSanitizer is told of each change of stacks: LEAVE before, ARRIVE behind it. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
static const void *scheduler_stack;
static size_t scheduler_bytes;
#define LEAVE(stack, bytes) __sanitizer_start_switch_fiber(NULL, stack, bytes)
#define ARRIVE(stack, bytes) __sanitizer_finish_switch_fiber(NULL, stack, bytes)
#else
#define LEAVE(stack, bytes)
#define ARRIVE(stack, bytes)
#endif

static void begin_block(void)
{
    next = 0;
    offset = fake_random(threads);
}

/* The block behind the current one; 0: there is none. */
static int next_block(void)
{
    blockIdx.x = (blockIdx.x + 1) % gridDim.x;
    blockIdx.y = (blockIdx.y + !blockIdx.x) % gridDim.y;
    blockIdx.z += !blockIdx.x && !blockIdx.y;
    if (blockIdx.z == gridDim.z) {
        return 0;
    }
    begin_block();
    return 1;
}

int fake_next_thread(void)
{
    unsigned i;

    if (next == threads && (stopped || !more || !(more = next_block()))) {
        return 0;
    }
    i = (unsigned)(((unsigned long)next++ * factor + offset) % threads);
    threadIdx.x = i % blockDim.x;
    threadIdx.y = i / blockDim.x % blockDim.y;
    threadIdx.z = i / blockDim.x / blockDim.y;
    return 1;
}

/* Returns when the scheduler continues this fiber. */
static void to_scheduler(struct fiber *f)
{
    if (!_setjmp(f->at)) {
        LEAVE(scheduler_stack, scheduler_bytes);
        _longjmp(scheduler, 1);
    }
    ARRIVE(&scheduler_stack, &scheduler_bytes);
}

void fake_barrier(void)
{
    struct fiber *f = &fiber[running];

    f->thread = threadIdx;
    waiting[n_waiting++] = running;
    stopped++;
    to_scheduler(f);
    stopped--;
    threadIdx = f->thread;
}

/* A fiber runs threads until there are none, again and again. */
static void live(void)
{
    ARRIVE(&scheduler_stack, &scheduler_bytes);
    for (;;) {
        kernel->threads(kernel->arguments);
        idle[n_idle++] = running;
        to_scheduler(&fiber[running]);
    }
}

static void make_fiber(struct fiber *f)
{
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (stack == MAP_FAILED) {
        fake_die("no memory for threads of a kernel");
    }
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, live, 0);
    f->made = 1;
}

/* Until the fiber comes to a barrier, or to the end of the threads. */
static void run_fiber(int i)
{
    int is_new = !fiber[i].made;

    running = i;
    if (is_new) {
        make_fiber(&fiber[i]);
    }
    if (_setjmp(scheduler)) {
        ARRIVE(NULL, NULL);
        return;
    }
    LEAVE(fiber[i].context.uc_stack.ss_sp, STACK);
    if (is_new) {
        setcontext(&fiber[i].context);
    }
    _longjmp(fiber[i].at, 1);
}

static void run_new_fiber(void)
{
    static int fibers; /* that were ever taken */

    run_fiber(n_idle ? idle[--n_idle] : fibers++);
}

/* All that wait at a barrier go on. The last of them may begin the next block. */
static void run_round(void)
{
    static int goes_on[FIBERS];
    int n = n_waiting, shift = (int)fake_random((unsigned)n_waiting);

    for (int i = 0; i < n; i++) {
        goes_on[i] = waiting[(i + shift) % n];
    }
    n_waiting = 0;
    for (int i = 0; i < n; i++) {
        run_fiber(goes_on[i]);
    }
}

void fake_run(const struct fake_launch *launch)
{
    static const unsigned primes[] = {1031, 1279, 1429, 1931};

    kernel = launch;
    gridDim = launch->grid;
    blockDim = launch->block;
    blockIdx.x = blockIdx.y = blockIdx.z = 0;
    threads = blockDim.x * blockDim.y * blockDim.z;
    factor = primes[fake_random(4)]; /* larger than a block */
    more = 1;
    begin_block();
    while (next < threads || n_waiting) {
        if (next < threads) {
            run_new_fiber();
        } else {
            run_round();
        }
    }
}
