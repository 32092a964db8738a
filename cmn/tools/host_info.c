#include "tools/host_info.h"

#include <cblas.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/arguments.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/shared_window.h"

enum { TRIED_WINDOW = 64 << 20 };

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* 0 when the file cannot be read. */
static uint64_t hash_file(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    char piece[65536];
    FILE *file = fopen(name, "rb");
    size_t n;

    if (!file) {
        return 0;
    }
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) {
        h = hash(h, piece, n);
    }
    if (ferror(file)) {
        h = 0;
    }
    fclose(file);
    return h;
}

/* Containers of one machine have its boot id, but a network of their own unless they share it. */
static uint64_t network_stack(void)
{
    uint64_t h = hash_file("/proc/sys/kernel/random/boot_id");
    struct stat net;

    if (stat("/proc/self/ns/net", &net)) {
        return h;
    }
    return hash(h, &net.st_ino, sizeof net.st_ino);
}

static void program(struct cmn_host_info *f)
{
    int length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";

    MPI_Get_library_version(text, &length);
    snprintf(f->mpi, sizeof f->mpi, "%.*s", (int)strcspn(text, "\n"), text);
    snprintf(f->version, sizeof f->version, "%s", CMN_VERSION);
    f->program = hash_file("/proc/self/exe");
}

/* A setting of the MPI library, whether it came from mpiexec, the environment or a file; "" when there is
 * no such setting. */
static void mpi_setting(const char *name, char *value, size_t bytes)
{
    char text[4096] = ""; /* MPI_T copies the whole text, however long */
    MPI_T_cvar_handle handle;
    int index, count = 0;

    value[0] = '\0';
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) {
        return;
    }
    if (count < (int)sizeof text && MPI_T_cvar_read(handle, text) == MPI_SUCCESS) {
        snprintf(value, bytes, "%.*s", (int)bytes - 1, text);
    }
    MPI_T_cvar_handle_free(&handle);
}

static void settings(struct cmn_host_info *f)
{
    int provided;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
        return;
    }
    mpi_setting("btl_tcp_if_include", f->include, sizeof f->include);
    mpi_setting("btl_tcp_if_exclude", f->exclude, sizeof f->exclude);
    MPI_T_finalize();
}

static int memory(struct cmn_host_info *f, const struct cmn_session *s)
{
    struct cmn_group intra = {s->topology.intra, "intra", &s->topology, &s->options, 0};
    struct cmn_window *w = NULL;
    struct statvfs shm;

    f->memory_free = cmn_memory_free();
    if (!statvfs("/dev/shm", &shm)) {
        f->shm_size = (size_t)shm.f_blocks * shm.f_frsize;
        f->shm_free = (size_t)shm.f_bavail * shm.f_frsize;
    }
    if (cmn_window_open(&w, &intra, 0, TRIED_WINDOW)) {
        snprintf(f->window, sizeof f->window, "%s", cmn_reason());
        return 0;
    }
    if (cmn_window_barrier(w)) {
        return -1; /* another rank is gone */
    }
    cmn_window_close(w);
    return 0;
}

int cmn_host_info_gather(struct cmn_host_info *f, const struct cmn_session *s)
{
    const struct cmn_topology *t = &s->topology;

    memset(f, 0, sizeof *f);
    snprintf(f->host, sizeof f->host, "%s", t->host);
    f->rank = t->rank;
    f->intra_rank = t->intra_rank;
    f->intra_size = t->intra_size;
    f->inter_rank = t->inter_rank;
    f->inter_size = t->inter_size;
    f->stack = network_stack();
    if (sched_getaffinity(0, sizeof f->cores, &f->cores)) {
        CPU_ZERO(&f->cores);
    }
    f->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    f->blas_threads = openblas_get_num_threads();
    f->launched = cmn_arguments_launch_size();
    program(f);
    cmn_host_info_devices(f, t);
    settings(f);
    f->nics = cmn_nics(AF_INET, f->nic, CMN_NICS);
    return memory(f, s);
}
