#include "trainer/session.h"

#include <cblas.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mpi/consistency.h"
#include "base/atomic_file.h"
#include "mpi/files.h"
#include "data/image_cache.h"
#include "base/log.h"
#include "base/output.h"
#include "base/random.h"

/* Several ranks on one host share its cores: without this each would start a thread per core.
 * Launchers bind ranks to cores, so only ranks that may use a same core share it. */
static int share_cores(const struct cmn_session *s)
{
    const struct cmn_topology *t = &s->topology;
    cpu_set_t mine, common, *all;
    int sharers = 0, cores, result;

    if (sched_getaffinity(0, sizeof mine, &mine)) {
        CPU_ZERO(&mine); /* more cores than the set has room for: leave the library's choice */
    }
    all = calloc((size_t)t->intra_size, sizeof *all);
    if (!all) {
        return cmn_fail("out of memory");
    }
    result = cmn_mpi_check(
        MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, t->intra),
        "MPI_Allgather");
    for (int i = 0; i < t->intra_size; i++) {
        CPU_AND(&common, &mine, &all[i]);
        sharers += CPU_COUNT(&common) > 0;
    }
    free(all);
    cores = CPU_COUNT(&mine);
    if (result || !cores || getenv("OPENBLAS_NUM_THREADS") || getenv("GOTO_NUM_THREADS") ||
        getenv("OMP_NUM_THREADS")) {
        return result;
    }
    /* With another number of threads OpenBLAS adds in another order, and an evaluation prints the same for all. */
    if (s->command && s->command->does == CMN_EVALUATES) {
        openblas_set_num_threads(1);
        return 0;
    }
    openblas_set_num_threads(cores > sharers ? cores / sharers : 1);
    if (cores == 1 && sysconf(_SC_NPROCESSORS_ONLN) > t->intra_size) {
        cmn_say(
            "each rank is bound to one core, and its loader threads with it; `mpiexec --bind-to "
            "none` lets them use all %ld",
            sysconf(_SC_NPROCESSORS_ONLN));
    }
    return 0;
}

/* 0 when `bytes` of address space for `what` are to be had, or no limit is set; `limited` says which. */
static int try_space(size_t bytes, const char *what, int *limited)
{
    struct rlimit limit;
    void *space;

    *limited = 0;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) {
        return 0;
    }
    *limited = 1;
    space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) {
        return cmn_fail("not enough memory for %s: the limit of the address space (ulimit -v) is "
                        "%lu KiB, and less than %zu MiB of it are left: raise it",
                        what, (unsigned long)(limit.rlim_cur >> 10), bytes >> 20);
    }
    munmap(space, bytes);
    return 0;
}

/* Open MPI 4.1 was seen to map 271 MiB up to its first collective, on 2 ranks of one host; OpenBLAS comes after it. */
enum { BLAS_SPACE = 136 << 20, START_SPACE = 384 << 20 };

int cmn_session_space(void)
{
    int limited;

    return try_space(START_SPACE, "MPI and OpenBLAS", &limited);
}

/* OpenBLAS takes a buffer at the first product, and tries for ever when it gets none. Under a limit of the address
 * space that is tried here; the product makes OpenBLAS keep what there is now. */
static int reserve_blas(void)
{
    enum { SIDE = 128 };
    float *matrix;
    int limited;

    if (try_space(BLAS_SPACE, "OpenBLAS", &limited)) {
        return -1;
    }
    if (!limited) {
        return 0;
    }
    matrix = calloc((size_t)SIDE * SIDE, sizeof *matrix);
    if (!matrix) {
        return cmn_fail("out of memory");
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, matrix, SIDE,
                matrix, SIDE, 0, matrix, SIDE);
    free(matrix);
    return 0;
}

int cmn_session_open(struct cmn_session *s)
{
    cmn_topology_open(&s->topology);
    return share_cores(s);
}

static int agree_on_seed(struct cmn_session *s)
{
    s->seed = (unsigned long)s->options.seed;
    if (s->seed == 0) {
        s->seed = cmn_random_draw_seed();
    }
    return cmn_mpi_check(MPI_Bcast(&s->seed, 1, MPI_UNSIGNED_LONG, 0, s->topology.world),
                         "MPI_Bcast of the seed");
}

static int open_communicator(struct cmn_session *s)
{
    if (s->communicator) {
        return 0;
    }
    s->communicator = cmn_communicator_choose(&s->topology, &s->options, &s->communicator_why);
    if (!s->communicator) {
        return -1;
    }
    if (s->communicator->open(&s->exchange, &s->topology, &s->options)) {
        cmn_fail_in("%s", s->communicator->name);
        s->communicator = NULL;
        return -1;
    }
    return 0;
}

/* Ranks with other keys would go into other exchanges, and wait there for each other. */
static int compare_keys(const struct cmn_session *s)
{
    char text[16384];
    int used = snprintf(text, sizeof text, "command = %s\n", cmn_command_name(s->command));

    if (cmn_options_print(&s->options, text + used, sizeof text - (size_t)used)) {
        return -1;
    }
    cmn_files_compare("set of keys", text, &s->topology);
    return 0;
}

/* A validation exchanges neither gradients nor statistics. Its cfg may be one for training on other nodes, where these keys can work. */
static void forget_gradients(struct cmn_options *o)
{
    o->dtype = CMN_FP32;
    o->compress = CMN_COMPRESS_NONE;
    o->overlap = CMN_OVERLAP_AUTO;
    o->double_buffering = 0;
    o->local_steps = 1;
    o->sync_bn = 0;
    o->lars = 0;
}

int cmn_session_configure(struct cmn_session *s)
{
    size_t limit = cmn_image_cache_default_limit(s->topology.intra_size);

    cmn_compare_program(&s->topology);
    if (compare_keys(s) || reserve_blas()) {
        return -1;
    }
    if (cmn_options_idle(&s->options,
                         s->command->does == CMN_EVALUATES ? cmn_command_name(s->command) : NULL)) {
        return -1;
    }
    if (s->command->does != CMN_TRAINS) {
        forget_gradients(&s->options);
    }
    if (s->options.report == CMN_REPORT_QUIET) {
        cmn_say_nothing();
    }
    if (s->options.cache_mb >= 0) {
        limit = (size_t)s->options.cache_mb << 20;
    }
    cmn_image_cache_limit(limit);
    if (cmn_output_open(s->topology.rank, s->topology.size, s->options.log) || agree_on_seed(s)) {
        return -1;
    }
    cmn_random_open(s->seed, s->topology.rank);
    return open_communicator(s);
}

static int copy_name(char name[CMN_TEXT], const char *from)
{
    if (strlen(from) >= CMN_TEXT) {
        return cmn_fail("the .data file holds a name longer than %d bytes", CMN_TEXT - 1);
    }
    memcpy(name, from, strlen(from) + 1);
    return 0;
}

static int open_backup(const struct cmn_session *s)
{
    if (s->topology.rank != 0) {
        return 0;
    }
    if (!s->backup[0]) {
        return cmn_fail("the .data file names no `backup` folder: add a line backup = FOLDER");
    }
    if (cmn_files_make_writable(s->backup)) {
        cmn_say("made the backup folder %s", s->backup);
    }
    cmn_atomic_sweep(s->backup);
    return 0;
}

int cmn_session_data(struct cmn_session *s, const struct cmn_data_cfg *d)
{
    const char *valid = s->options.validate && d->valid ? d->valid : "";
    const char *labels = d->labels ? d->labels : "data/labels.list";

    if (copy_name(s->backup, d->backup ? d->backup : "") ||
        copy_name(s->train_list, d->train ? d->train : "data/train.list") ||
        copy_name(s->valid_list, valid) || copy_name(s->names, d->names ? d->names : "") ||
        open_backup(s)) {
        return -1;
    }
    s->classes = d->classes;
    if (s->valid_list[0] && s->command->answer == CMN_BOXES) {
        cmn_boxes_open(&s->boxes, s->valid_list, "");
    }
    if (!s->valid_list[0] || s->command->answer != CMN_CLASSES) {
        return 0;
    }
    cmn_valid_open(&s->valid, s->valid_list, labels, d->classes ? d->classes : 2, d->top);
    return 0;
}

void cmn_session_close(struct cmn_session *s)
{
    if (s->communicator) {
        s->communicator->close(s->exchange);
        s->communicator = NULL;
    }
    cmn_topology_close(&s->topology);
    cmn_image_cache_close();
}
