#include "tools/host_info.h"

#include <cblas.h>
#include <mpi.h>
#ifdef CMN_NCCL
#include <nccl.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/launcher.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/convolution.h"
#include "mpi/device.h"
#include "mpi/files.h"
#include "mpi/shared_window.h"

enum { TRIED_WINDOW = 64 << 20 }; /* bytes */

/* Returns a hash of the boot id and the network namespace: containers of one machine share the boot
 * id, but not always the network. */
static uint64_t network_stack(void)
{
    struct stat net;
    size_t bytes;
    uint64_t h;

    cmn_files_hash("/proc/sys/kernel/random/boot_id", &bytes, &h);
    return stat("/proc/self/ns/net", &net)
               ? h
               : XXH3_64bits_withSeed(&net.st_ino, sizeof net.st_ino, h);
}

static void describe_program(struct cmn_host_info *info)
{
    size_t bytes;
    int length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";

    MPI_Get_library_version(text, &length);
    snprintf(info->mpi, sizeof info->mpi, "%.*s", (int)strcspn(text, "\n"), text);
    snprintf(info->version, sizeof info->version, "%s", CMN_VERSION);
    cmn_files_hash("/proc/self/exe", &bytes, &info->program);
}

void cmn_host_info_print_version(FILE *out)
{
    struct cmn_host_info info;

    describe_program(&info);
    fprintf(out, "darknet-cmn %s\n%s\n%s\n%s", info.version, info.mpi, openblas_get_config(),
            cmn_convolution_kernels());
}

/* Reads a setting of the MPI library, which may come from mpiexec, the environment or a file; "" if
 * there is none. */
static void mpi_setting(const char *name, char *value, size_t bytes)
{
    char text[4096] = ""; /* MPI_T copies the whole text and does not check the room */
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

static void read_mpi_settings(struct cmn_host_info *info)
{
    int provided;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
        return;
    }
    mpi_setting("btl_tcp_if_include", info->include, sizeof info->include);
    mpi_setting("btl_tcp_if_exclude", info->exclude, sizeof info->exclude);
    MPI_T_finalize();
}

/* Collective over the node. Reads the sizes of memory and /dev/shm, and tries a shared window. */
static void try_memory(struct cmn_host_info *info, const struct cmn_session *s)
{
    struct cmn_group intra = {s->topology.intra, "intra", &s->topology, &s->options};
    struct cmn_window *w = NULL;
    struct statvfs shm;

    info->memory_free = cmn_memory_free();
    if (!statvfs("/dev/shm", &shm)) {
        info->shm_size = (size_t)shm.f_blocks * shm.f_frsize;
        info->shm_free = (size_t)shm.f_bavail * shm.f_frsize;
    }
    if (cmn_window_open(&w, &intra, 0, TRIED_WINDOW)) {
        snprintf(info->window, sizeof info->window, "%s", cmn_reason());
        return;
    }
    cmn_window_barrier(w);
    cmn_window_close(w);
}

/* ---- GPUs ---- */

static void describe_devices(struct cmn_host_info *info, const struct cmn_topology *t)
{
    info->device = t->device;
    info->gpus = cmn_device_built() ? cmn_device_count() : -1;
    if (!cmn_device_built()) {
        snprintf(info->cuda, sizeof info->cuda, "not built in");
    } else {
        snprintf(info->cuda, sizeof info->cuda, "built in, %d GPU%s for this rank", info->gpus,
                 info->gpus == 1 ? "" : "s");
    }
#ifdef CMN_NCCL
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess) {
        snprintf(info->nccl, sizeof info->nccl, "%d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
    } else {
        snprintf(info->nccl, sizeof info->nccl, "version unknown");
    }
#else
    snprintf(info->nccl, sizeof info->nccl, "not built in");
#endif
}

void cmn_host_info_gather(struct cmn_host_info *info, const struct cmn_session *s)
{
    const struct cmn_topology *t = &s->topology;

    memset(info, 0, sizeof *info);
    snprintf(info->host, sizeof info->host, "%s", t->host);
    info->rank = t->rank;
    info->intra_rank = t->intra_rank;
    info->intra_size = t->intra_size;
    info->inter_rank = t->inter_rank;
    info->inter_size = t->inter_size;
    info->stack = network_stack();
    if (sched_getaffinity(0, sizeof info->cores, &info->cores)) {
        CPU_ZERO(&info->cores);
    }
    info->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    info->blas_threads = openblas_get_num_threads();
    info->launched = cmn_launcher_size();
    describe_program(info);
    describe_devices(info, t);
    read_mpi_settings(info);
    info->nics = cmn_nics(AF_INET, info->nic, CMN_NICS);
    try_memory(info, s);
}
