#include "base/loading.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/log.h"
#include "base/output.h"

/* OpenBLAS (0.3.29) starts a thread for each core when it is loaded, and takes 128 MiB of address
 * space for each. Where a limit (ulimit -v, as batch systems set it) leaves less, it tries again for
 * ever, in silence. */
enum { FOR_A_THREAD = 136 << 20, FOR_THE_REST = 64 << 20 };

static size_t space_for(int threads)
{
    return (size_t)threads * FOR_A_THREAD + FOR_THE_REST;
}

static int there_is(size_t bytes)
{
    void *space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (space != MAP_FAILED) {
        munmap(space, bytes);
    }
    return space != MAP_FAILED;
}

/* How many threads OpenBLAS starts, and whether the user has said so. */
static int threads_to_start(int *said)
{
    static const char *const names[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                        "OMP_NUM_THREADS"};
    cpu_set_t cores;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        *said = value && atoi(value) > 0;
        if (*said) {
            return atoi(value);
        }
    }
    return sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
}

/* Before main() there is no cmn_fatal(), which ends other threads, MPI and files as well. */
static void refuse(unsigned long limit, size_t bytes)
{
    enum { AWAIT_THE_END = 5 };
    char host[64] = "this host", line[512], prefix[96];
    int rank = cmn_launcher_rank(), printed;

    gethostname(host, sizeof host - 1);
    cmn_log_identity(rank > 0 ? rank : 0, host);
    cmn_log_prefix(prefix, sizeof prefix);
    snprintf(line, sizeof line,
             "%snot enough memory for OpenBLAS: the limit of the address space (ulimit -v) is %lu "
             "KiB, and less than %zu MiB of it are left: raise it\n",
             prefix, limit >> 10, bytes >> 20);
    printed = cmn_output_fatal(line, 0);
    sleep(printed ? CMN_FATAL_WAIT : AWAIT_THE_END);
    cmn_launcher_end_job(1);
    _exit(1);
}

static void before_libraries(int argc, char **argv, char **environment)
{
    struct rlimit limit;
    int said, threads;

    (void)argc;
    environ = environment; /* libc knows it a moment later */
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) {
        return;
    }
    threads = threads_to_start(&said);
    if (there_is(space_for(threads))) {
        return;
    }
    if (!said && threads > 1 && there_is(space_for(1))) {
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        setenv(CMN_ONE_BLAS_THREAD, "1", 1);
        execve("/proc/self/exe", argv, environ);
    }
    refuse(limit.rlim_cur, space_for(said ? threads : 1));
}

/* Sanitizers begin at the same time, and need more than any limit. */
typedef void begins(int argc, char **argv, char **environment);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((section(".preinit_array"), used))
#endif
begins *cmn_before_libraries = before_libraries;
