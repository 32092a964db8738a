#include "trainer/session.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/random.h"
#include "config/cfg_keys.h"
#include "config/pairs.h"
#include "data/image_cache.h"
#include "data/scatter.h"
#include "engine/convolution.h"
#include "engine/gpu_convolution.h"
#include "engine/products.h"
#include "mpi/call.h"
#include "mpi/consistency.h"
#include "mpi/device.h"
#include "mpi/files.h"

/* Divides the cores among OpenBLAS's threads: without this, each rank of a host would start a
 * thread for each core. Launchers bind ranks to cores, so only ranks that may use a common core
 * share it. */
static void share_cores(const struct cmn_session *s)
{
    const struct cmn_topology *t = &s->topology;
    cpu_set_t mine, common, *all;
    int sharers = 0, cores;

    if (sched_getaffinity(0, sizeof mine, &mine)) {
        CPU_ZERO(&mine); /* the set has no room for all cores: keep the library's choice */
    }
    all = cmn_calloc((size_t)t->intra_size, sizeof *all);
    MPI_CALL(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, t->intra));
    for (int i = 0; i < t->intra_size; i++) {
        CPU_AND(&common, &mine, &all[i]);
        sharers += CPU_COUNT(&common) > 0;
    }
    free(all);
    cores = CPU_COUNT(&mine);
    if (!cores || getenv("OPENBLAS_NUM_THREADS") || getenv("GOTO_NUM_THREADS") ||
        getenv("OMP_NUM_THREADS")) {
        return;
    }
    /* OpenBLAS adds in another order if its number of threads is another. An evaluation must print
     * the same with any number of ranks. */
    if (s->command && s->command->does == CMN_EVALUATES) {
        openblas_set_num_threads(1);
        return;
    }
    openblas_set_num_threads(cores > sharers ? cores / sharers : 1);
    if (cores == 1 && sysconf(_SC_NPROCESSORS_ONLN) > t->intra_size) {
        cmn_say(
            "each rank is bound to one core, and its loader threads with it; `mpiexec --bind-to "
            "none` lets them use all %ld",
            sysconf(_SC_NPROCESSORS_ONLN));
    }
}

/* Ends the process unless `bytes` bytes of address space are left for `what`. Returns whether there
 * is a limit. */
static int check_space(size_t bytes, const char *what)
{
    struct rlimit limit;
    void *space;

    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) {
        return 0;
    }
    space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) {
        cmn_fatal("not enough memory for %s: the limit of the address space (ulimit -v) is %lu "
                  "KiB, and less than %zu MiB of it are left: raise it",
                  what, (unsigned long)(limit.rlim_cur >> 10), bytes >> 20);
    }
    munmap(space, bytes);
    return 1;
}

/* Open MPI 4.1 was seen to map 271 MiB until after its first collective, with 2 ranks on one host;
 * OpenBLAS comes after it. */
enum { BLAS_SPACE = 136 << 20, START_SPACE = 384 << 20 };

/* PMIx of Open MPI 4.1 has files of so many bytes in common with its daemon, which takes memory
 * without end if it can write none. */
enum { PMIX_FILE = 4 << 20 };

void cmn_session_check_limits(void)
{
    struct rlimit limit;

    check_space(START_SPACE, "MPI and OpenBLAS");
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < PMIX_FILE) {
        cmn_fatal("the limit of a file's size (ulimit -f) is %lu KiB, and MPI has files of %d KiB: "
                  "raise it",
                  (unsigned long)(limit.rlim_cur >> 10), PMIX_FILE >> 10);
    }
}

/* OpenBLAS takes a buffer for each thread at the first product, and retries forever if it gets
 * none. With a limit of the address space, the product here makes it allocate the buffers now. */
static void reserve_blas(const struct cmn_session *s)
{
    enum { SIDE = 128 };
    int limited = check_space((size_t)openblas_get_num_threads() * BLAS_SPACE, "OpenBLAS");
    float *matrix;

    if (s->arithmetic[0]) { /* cmn_exact; OpenBLAS takes a buffer for each calling thread */
        cmn_products_open(limited ? 1 : s->blas_threads);
    }
    if (!limited) {
        return;
    }
    matrix = cmn_calloc((size_t)SIDE * SIDE, sizeof *matrix);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, matrix, SIDE,
                matrix, SIDE, 0, matrix, SIDE);
    free(matrix);
}

void cmn_session_open(struct cmn_session *s)
{
    cmn_topology_open(&s->topology);
    share_cores(s);
}

static void agree_on_seed(struct cmn_session *s)
{
    s->seed = (unsigned long)s->options.seed;
    if (s->options.seed < 0) {
        s->seed = cmn_random_draw_seed();
    }
    MPI_CALL(MPI_Bcast(&s->seed, 1, MPI_UNSIGNED_LONG, 0, s->topology.world));
}

static void open_communicator(struct cmn_session *s)
{
    const struct cmn_communicator *c;

    if (s->communicator) {
        return;
    }
    /* An evaluation only sums counts, by MPI; NCCL would take memory and time to start for
     * nothing. */
    c = s->topology.device >= 0 && s->command->does == CMN_EVALUATES
            ? cmn_communicator_find("dummy")
            : cmn_communicator_choose(&s->topology, &s->options, &s->communicator_why);
    if (!c) {
        cmn_fatal_reason();
    }
    if (c->open(&s->exchange, c, &s->topology, &s->options)) {
        cmn_fail_in("%s", c->name);
        cmn_fatal_reason();
    }
    s->communicator = c;
}

/* Ends the job if keys differ between ranks: they would start different exchanges and wait there
 * for each other. */
static void compare_keys(const struct cmn_session *s)
{
    char text[16384];
    int used = snprintf(text, sizeof text, "command = %s\n", cmn_command_name(s->command));

    if (cmn_options_print(&s->options, text + used, sizeof text - (size_t)used)) {
        cmn_fatal_reason();
    }
    cmn_files_compare("set of keys", text, &s->topology);
}

/* Resets the keys of the exchange for an evaluation, which exchanges neither gradients nor
 * statistics. Its cfg may be meant for training on other nodes, where these keys work. */
static void forget_gradients(struct cmn_options *o)
{
    o->compress = CMN_COMPRESS_OFF;
    o->overlap = CMN_OVERLAP_AUTO;
    o->double_buffering = 0;
    o->local_steps = 1;
    o->sync_bn = 0;
    o->exact = 0;
    o->balance = CMN_BALANCE_OFF;
    o->lars = 0;
    o->clip = 0;
}

/* Returns a hash of what the C library's functions make of many numbers: they differ between its
 * versions, and between processors. */
static uint64_t hash_functions(void)
{
    enum { TRIED = 2000, FUNCTIONS = 8 };
    static double y[TRIED][FUNCTIONS];

    for (int i = 0; i < TRIED; i++) {
        double x = (i + .5) / 97 - 10, more = fabs(x) + .01;
        double of[FUNCTIONS] = {exp(x),
                                log(more),
                                pow(more, 1.7),
                                sin(x),
                                tanh(x),
                                (double)expf((float)x),
                                (double)logf((float)more),
                                (double)powf((float)more, .7F)};
        memcpy(y[i], of, sizeof of);
    }
    return XXH3_64bits(y, sizeof y);
}

/* cmn_exact: OpenBLAS adds in another order if its number of threads is another, so it gets one
 * thread; cmn_products_multiply() uses the others. OpenBLAS, oneDNN and the C library compute
 * differently on different processors, so all ranks must have the same kernels of them. */
static void pin_arithmetic(struct cmn_session *s)
{
    char text[2048];

    if (!s->options.exact || s->command->does != CMN_TRAINS) {
        return;
    }
    s->blas_threads = openblas_get_num_threads();
    openblas_set_num_threads(1);
    snprintf(text, sizeof text,
             "OpenBLAS's kernels for %s of %s\n%sthe C library's functions give %016" PRIx64 "\n",
             openblas_get_corename(), openblas_get_config(),
             cmn_debug_word("ONEDNN") ? "" : cmn_convolution_kernels(), hash_functions());
    cmn_files_compare("arithmetic (cmn_exact=on)", text, &s->topology);
    snprintf(s->arithmetic, sizeof s->arithmetic, "%016" PRIx64,
             (uint64_t)XXH3_64bits(text, strlen(text)));
}

void cmn_session_refuse_pairs(const struct cmn_session *s)
{
    const struct cmn_options *o = &s->options;
    const char *driver = s->command->driver, *name = cmn_command_name(s->command);
    int on_gpus = s->topology.device >= 0;

    if (cmn_pairs_check(o) ||
        cmn_pairs_check_trait(o, on_gpus ? CMN_IS_ON_GPUS : CMN_IS_ON_CPU,
                              on_gpus ? "GPUs" : "the CPU") ||
        (!strcmp(driver, "cifar") && cmn_pairs_check_trait(o, CMN_TRAINS_IN_MEMORY, name)) ||
        (s->command->answer == CMN_NO_ANSWER &&
         cmn_pairs_check_trait(o, CMN_TRAINS_OTHER_FILES, name))) {
        cmn_fatal_reason();
    }
}

/* Ends the job if the processor or the GPU lacks the precision that cmn_mixed asks for; otherwise
 * selects it. */
static void choose_precision(const struct cmn_session *s)
{
    enum { AMPERE = 8 }; /* lowest compute capability with bf16 */
    int capability;

    if (s->options.mixed != CMN_MIXED_BF16 || s->command->does != CMN_TRAINS) {
        return; /* trainer/nhwc.c chooses for cmn_mixed=auto */
    }
    if (s->topology.device < 0) {
        if (!cmn_convolution_use_bf16(1)) {
            cmn_fatal("cmn_mixed=bf16: this processor multiplies no numbers of bf16 "
                      "(avx512_bf16, amx_bf16; /proc/cpuinfo), or the program was built without "
                      "oneDNN: remove the key");
        }
        return;
    }
    capability = cmn_device_capability(s->topology.device);
    if (capability < AMPERE) {
        cmn_fatal("cmn_mixed=bf16: GPUs have bf16 from compute capability 8.0 on, and this one has "
                  "%d.x: remove the key",
                  capability);
    }
    if (!cmn_gpu_convolution_use_bf16()) {
        cmn_fatal("cmn_mixed=bf16: cuDNN computes it on GPUs, and the program was built without "
                  "CUDNN=1: remove the key");
    }
}

void cmn_session_configure(struct cmn_session *s)
{
    size_t limit = cmn_image_cache_default_limit();
    int evaluates = s->command->does == CMN_EVALUATES;

    cmn_compare_program(&s->topology);
    compare_keys(s);
    if (cmn_options_idle(&s->options, evaluates ? cmn_command_name(s->command) : NULL)) {
        cmn_fatal_reason();
    }
    if (s->options.data == CMN_DATA_SCATTER && s->command->does == CMN_TRAINS &&
        !s->options.spill[0]) {
        cmn_fatal("cmn_data=scatter needs cmn_cache_dir: name a folder on a disk of each host, "
                  "where the files go");
    }
    if (s->command->does == CMN_TRAINS) {
        cmn_session_refuse_pairs(s);
    } else {
        forget_gradients(&s->options);
    }
    choose_precision(s);
    pin_arithmetic(s);
    reserve_blas(s);
    if (s->options.report == CMN_REPORT_QUIET) {
        cmn_say_nothing();
    }
    if (s->options.cache_mb >= 0) {
        limit = (size_t)s->options.cache_mb << 20;
    }
    cmn_image_cache_open(&s->topology, limit, s->options.spill);
    cmn_output_open(s->topology.rank, s->topology.size, s->options.log);
    agree_on_seed(s);
    cmn_random_open(s->seed, s->topology.rank, 0);
    open_communicator(s);
    if (s->options.data == CMN_DATA_SCATTER && s->command->does == CMN_TRAINS) {
        cmn_scatter_open(&s->topology, s->options.spill);
    }
}

static void copy_name(char name[CMN_TEXT], const char *from)
{
    if (strlen(from) >= CMN_TEXT) {
        cmn_fatal("the .data file holds a name longer than %d bytes: %.60s…", CMN_TEXT - 1, from);
    }
    memcpy(name, from, strlen(from) + 1);
}

static void open_backup(const struct cmn_session *s)
{
    if (s->topology.rank != 0) {
        return;
    }
    if (!s->backup[0]) {
        cmn_fatal("the .data file " CMN_NO_BACKUP);
    }
    if (cmn_files_make_writable(s->backup)) {
        cmn_say("made the backup folder %s", s->backup);
    }
    cmn_atomic_sweep(s->backup);
}

static const char *labels_of(const struct cmn_data_cfg *d)
{
    return d->labels ? d->labels : "data/labels.list";
}

static int classes_of(const struct cmn_data_cfg *d)
{
    return d->classes ? d->classes : 2;
}

void cmn_session_names(struct cmn_session *s, const struct cmn_data_cfg *d)
{
    copy_name(s->names, d->names ? d->names : "");
    copy_name(s->eval, d->eval ? d->eval : "");
    if (s->command->answer == CMN_CLASSES) {
        free(cmn_valid_labels(labels_of(d), classes_of(d)));
    }
}

/* Collective. Hashes the labels: their order decides which class an image belongs to. */
static void hash_classes(struct cmn_session *s, const struct cmn_data_cfg *d)
{
    char **label = cmn_valid_labels(labels_of(d), classes_of(d));
    XXH64_hash_t hash = 0;

    for (int i = 0; i < classes_of(d); i++) {
        hash = XXH3_64bits_withSeed(label[i], strlen(label[i]) + 1, hash);
    }
    snprintf(s->classes_hash, sizeof s->classes_hash, "%016" PRIx64, (uint64_t)hash);
    free(label);
}

/* Hashes the names of the validation list, whose figures are compared with each other. */
static void hash_valid(struct cmn_session *s, char *const *paths, int n)
{
    XXH64_hash_t hash = 0;

    for (int i = 0; i < n; i++) {
        hash = XXH3_64bits_withSeed(paths[i], strlen(paths[i]) + 1, hash);
    }
    snprintf(s->valid_hash, sizeof s->valid_hash, "%016" PRIx64, (uint64_t)hash);
}

void cmn_session_data(struct cmn_session *s, const struct cmn_data_cfg *d)
{
    const char *valid = s->options.validate && d->valid ? d->valid : "";

    copy_name(s->backup, d->backup ? d->backup : "");
    copy_name(s->train_list,
              d->train ? d->train : cmn_data_train_list(s->command->answer == CMN_BOXES));
    copy_name(s->valid_list, valid);
    copy_name(s->names, d->names ? d->names : "");
    open_backup(s);
    s->classes = d->classes;
    if (s->valid_list[0] && s->command->answer == CMN_BOXES) {
        cmn_boxes_open(&s->boxes, s->valid_list, "");
        hash_valid(s, s->boxes.paths, s->boxes.images);
    }
    if (s->command->answer == CMN_CLASSES && !d->tag) {
        hash_classes(s, d);
    }
    if (s->valid_list[0] && s->command->answer == CMN_CLASSES) {
        cmn_valid_open(&s->valid, s->valid_list, labels_of(d), classes_of(d), d->top);
        hash_valid(s, s->valid.paths, s->valid.images);
    }
}

void cmn_session_close(struct cmn_session *s)
{
    cmn_products_close();
    if (s->communicator) {
        s->communicator->close(s->exchange);
        s->communicator = NULL;
    }
    cmn_topology_close(&s->topology);
    cmn_image_cache_close();
}
