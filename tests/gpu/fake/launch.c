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
static int running, idle[FIBERS], n_idle, all_made;
static int waiting[FIBERS], n_waiting; /* at a barrier, for the next round */
static int stopped;                    /* those, and the ones that have not yet gone on */
static jmp_buf scheduler;
static const struct fake_launch *kernel;
static unsigned threads, next, factor, offset; /* of a block; how many have begun; their order */
static int more;                               /* blocks */

static unsigned coprime(unsigned n)
{
    unsigned a = fake_random(n) | 1, b, c;

    for (;; a += 2) {
        for (b = a, c = n; c; b %= c, c ^= b, b ^= c, c ^= b) {
        }
        if (b == 1) {
            return a;
        }
    }
}

static void begin_block(void)
{
    next = 0;
    offset = fake_random(threads);
}

/* The block behind the current one; 0: there is none. */
static int next_block(void)
{
    if (++blockIdx.x == gridDim.x) {
        blockIdx.x = 0;
        if (++blockIdx.y == gridDim.y) {
            blockIdx.y = 0;
            if (++blockIdx.z == gridDim.z) {
                return 0;
            }
        }
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

void fake_barrier(void)
{
    struct fiber *f = &fiber[running];

    f->thread = threadIdx;
    waiting[n_waiting++] = running;
    stopped++;
    if (!_setjmp(f->at)) {
        _longjmp(scheduler, 1);
    }
    stopped--;
    threadIdx = f->thread;
}

/* A fiber runs threads until there are none, again and again. */
static void live(void)
{
    for (;;) {
        kernel->threads(kernel->arguments);
        idle[n_idle++] = running;
        if (!_setjmp(fiber[running].at)) {
            _longjmp(scheduler, 1);
        }
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
    running = i;
    if (_setjmp(scheduler)) {
        return;
    }
    if (fiber[i].made) {
        _longjmp(fiber[i].at, 1);
    }
    make_fiber(&fiber[i]);
    setcontext(&fiber[i].context);
}

static void run_new_fiber(void)
{
    for (int i = 0; i < FIBERS && !all_made; i++) {
        idle[n_idle++] = FIBERS - 1 - i;
    }
    all_made = 1;
    run_fiber(idle[--n_idle]);
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
    kernel = launch;
    gridDim = launch->grid;
    blockDim = launch->block;
    blockIdx.x = blockIdx.y = blockIdx.z = 0;
    threads = blockDim.x * blockDim.y * blockDim.z;
    factor = coprime(threads);
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
