/* A sched_yield() that sleeps each fourth time, for tests, whose ranks are more than the cores: ranks wait in such a loop, and
 * then leave the core to those that compute. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int sched_yield(void)
{
    static const struct timespec moment = {.tv_nsec = 20000};
    static _Thread_local unsigned calls;

    return ++calls % 4 ? (int)syscall(SYS_sched_yield) : nanosleep(&moment, NULL) * 0;
}
