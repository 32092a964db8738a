#include "mpi/shared_window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/shared_file.h"
#include "mpi/shm_barrier.h"

struct cmn_window {
    const struct cmn_group *group;
    char *base;
    size_t size;   /* bytes of the whole window */
    size_t begin;  /* of the ranks' parts, in bytes from `base` */
    size_t stride; /* bytes from one part to the next */
    size_t common; /* begin of the common part, in bytes from `base` */
    int rank, ranks;
    struct cmn_shm_barrier barrier; /* its slots lie at `base`, followed by the token */
};

enum { PAGE = 4096 };

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Returns the offset in the file of the token that proves that the file is this window's. */
static off_t token_at(const struct cmn_window *w)
{
    return (off_t)cmn_shm_barrier_bytes(w->ranks);
}

void *cmn_window_part(const struct cmn_window *w, int rank)
{
    return w->base + w->begin + (size_t)rank * w->stride;
}

void *cmn_window_common(const struct cmn_window *w)
{
    return w->base + w->common;
}

int cmn_window_holds(const struct cmn_window *w, const void *at, size_t bytes)
{
    const char *begin = cmn_window_part(w, w->rank), *p = at;

    return p >= begin && p + bytes <= begin + w->stride;
}

/* ---- opening ---- */

/* The sizes are the group's largest, so that all ranks have the same layout. */
static void lay_out(struct cmn_window *w, size_t bytes, size_t common)
{
    unsigned long long want[2] = {bytes, common};

    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, want, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, w->group->comm));
    w->begin = rounded((size_t)token_at(w) + sizeof(uint64_t), PAGE);
    /* Parts at multiples of a large power of two would compete for the same sets of the caches. */
    w->stride = rounded((size_t)want[0], PAGE) + PAGE + 5 * 128;
    w->common = rounded(w->begin + (size_t)w->ranks * w->stride, PAGE);
    w->size = rounded(w->common + (size_t)want[1], PAGE);
}

static int affordable(size_t bytes)
{
    struct rlimit most;
    size_t left = cmn_memory_free();

    if (bytes > left) {
        return cmn_fail("a shared window of %zu MiB cannot be had: %zu MiB of memory are free",
                        bytes >> 20, left >> 20);
    }
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY &&
        bytes > most.rlim_cur) {
        return cmn_fail("a shared window of %zu MiB cannot be had: the limit of a file's size "
                        "(ulimit -f) is %zu KiB",
                        bytes >> 20, (size_t)(most.rlim_cur >> 10));
    }
    return 0;
}

/* Runs on rank 0 of the group. Returns the file, which join() closes. After a failure where->file
 * is -1 and there is a reason. */
static int create(const struct cmn_window *w, struct cmn_shared_file *where)
{
    int file;

    if (affordable(w->size)) {
        return -1;
    }
    file = (int)syscall(SYS_memfd_create, "cmn", 1U /* MFD_CLOEXEC */);
    if (file < 0 || ftruncate(file, (off_t)w->size) ||
        cmn_shared_file_offer(where, file, token_at(w))) {
        cmn_fail("a shared window of %zu MiB cannot be had: %s", w->size >> 20, strerror(errno));
    }
    return file;
}

/* Reserves the pages of this rank's part, so that they lie in the memory next to its cores. */
static int reserve(const struct cmn_window *w, int file)
{
    size_t begin = w->rank == 0 ? 0 : w->begin + (size_t)w->rank * w->stride;
    size_t end = w->rank == w->ranks - 1 ? w->size : w->begin + ((size_t)w->rank + 1) * w->stride;
    int result;

    do {
        result = fallocate(file, 0, (off_t)begin, (off_t)(end - begin));
    } while (result && errno == EINTR);
    return result ? cmn_fail("a shared window of %zu MiB cannot be had: %s", w->size >> 20,
                             strerror(errno))
                  : 0;
}

static int map(struct cmn_window *w, const struct cmn_shared_file *where)
{
    int file = cmn_shared_file_join(where, token_at(w)), result;
    void *at;

    if (file < 0) {
        return cmn_fail_in("a shared window cannot be had");
    }
    result = reserve(w, file);
    if (!result) {
        at = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
        w->base = at == MAP_FAILED ? NULL : at;
        result = w->base ? 0
                         : cmn_fail("a shared window of %zu MiB cannot be mapped: %s",
                                    w->size >> 20, strerror(errno));
    }
    close(file);
    return result;
}

static int join(struct cmn_window *w)
{
    struct cmn_shared_file where = {-1, -1, 0};
    int file = w->rank == 0 ? create(w, &where) : -1, result;

    MPI_CALL(MPI_Bcast(&where, sizeof where, MPI_BYTE, 0, w->group->comm));
    /* Without a file only rank 0 has failed, and only it has the reason. */
    result = cmn_mpi_all_succeeded(where.file < 0 ? w->rank == 0 : map(w, &where), w->group->comm);
    if (file >= 0) {
        close(file); /* The mappings keep the file alive. */
    }
    return result;
}

int cmn_window_open(struct cmn_window **window, const struct cmn_group *group, size_t bytes,
                    size_t common)
{
    struct cmn_window *w = cmn_calloc(1, sizeof *w);

    w->group = group;
    MPI_Comm_rank(group->comm, &w->rank);
    MPI_Comm_size(group->comm, &w->ranks);
    lay_out(w, bytes, common);
    *window = NULL;
    if (join(w)) {
        cmn_window_close(w);
        return -1;
    }
    cmn_shm_barrier_open(&w->barrier, group, w->base);
    *window = w;
    return 0;
}

void cmn_window_close(struct cmn_window *w)
{
    if (!w) {
        return;
    }
    cmn_shm_barrier_close(&w->barrier);
    if (w->base) {
        munmap(w->base, w->size);
    }
    free(w);
}

void cmn_window_barrier(struct cmn_window *w)
{
    cmn_shm_barrier_wait(&w->barrier);
}

struct cmn_shm_barrier *cmn_window_barrier_of(struct cmn_window *w)
{
    return &w->barrier;
}
