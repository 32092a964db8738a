#include "cmn.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "darknet.h"
#include "option_list.h"

#include "files.h"
#include "images.h"
#include "log.h"
#include "output.h"
#include "random.h"
#include "scatter.h"
#include "session.h"
#include "tools/tools.h"
#include "training.h"

/* darknet.h sends Darknet's own rand() here. */
#undef rand

static struct cmn_session session;
static struct cmn_training *trained;    /* the network that the job trains */

/* ---- the end ---- */

/* The only place that ends a job before its time. */
static void end_job(const char *message)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    char line[2048];

    if (pthread_mutex_trylock(&once)) {
        for (;;) {
            pause();    /* another thread of this process is ending the job already */
        }
    }
    cmn_log_prefix(line, sizeof line - 1024);
    snprintf(line + strlen(line), sizeof line - strlen(line), "%.1000s\n", message);
    if (!cmn_output_last_word(line, session.topology.inter_rank)) {
        sleep(5);    /* whoever speaks ends the job, and with it this process */
    }
    alarm(5);        /* should MPI_Abort itself hang */
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

static void check(int result)
{
    if (result < 0) {
        end_job(cmn_reason());
    }
}

void cmn_fatal(const char *message)
{
    if (session.on) {
        end_job(message);
    }
}

static void finish(int status, void *unused)
{
    char text[64];

    (void)unused;
    if (!session.on) {
        return;
    }
    if (status != 0) {
        snprintf(text, sizeof text, "ended with status %d", status);
        end_job(text);
    }
    fflush(NULL);
    session.on = 0;
    if (session.communicator) {
        session.communicator->close(session.exchange);
    }
    cmn_topology_close(&session.topology);
    MPI_Finalize();
    cmn_images_close();
    if (session.stop_signal) {
        _exit(128 + session.stop_signal);
    }
}

/* ---- the start ---- */

/* Sets the keys given as -cmn_key VALUE and takes them, and -cmn, out of the arguments.
 * Returns whether -cmn was there; *key tells whether a key was. */
static int take_arguments(int *argc, char **argv, int *result, int *key)
{
    int on = 0, kept = 0;

    *result = 0;
    *key = 0;
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "-cmn")) {
            on = 1;
        } else if (!strncmp(argv[i], "-cmn_", 5)) {
            *key = 1;
            if (i + 1 == *argc) {
                *result = cmn_fail("command line: %s: the value is missing", argv[i]);
            } else if (*result == 0) {
                *result = cmn_options_set(&session.options, argv[i] + 1, argv[i + 1], 1);
            }
            i++;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return on;
}

/* Processes that mpiexec or srun started without -cmn would train N copies, and overwrite each
 * other's weights. */
static void warn_of_copies(void)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"SLURM_NTASKS", "SLURM_PROCID"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *size = getenv(names[i][0]);
        const char *rank = getenv(names[i][1]);
        if (size && rank && atoi(size) > 1) {
            if (atoi(rank) == 0) {
                fprintf(stderr, "cmn: warning: %s processes were started without -cmn: they run as "
                        "%s independent copies; add -cmn to train together\n", size, size);
            }
            return;
        }
    }
}

static enum cmn_command command_of(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "classifier")) {
        if (!strcmp(argv[2], "train")) {
            return CMN_CLASSIFIER_TRAIN;
        }
        if (!strcmp(argv[2], "valid")) {
            return CMN_CLASSIFIER_VALID;
        }
    }
    return CMN_OTHER;
}

static unsigned long draw_seed(void)
{
    uint32_t bits = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, &bits, sizeof bits) != (ssize_t)sizeof bits) {
        bits = (uint32_t)getpid() * 2654435761u;
    }
    if (fd >= 0) {
        close(fd);
    }
    return (bits & 0x7fffffff) | 1;    /* 0 asks for a drawn one */
}

/* Several ranks on one host share its cores: without this each would start a thread per core. */
static void share_cores(void)
{
    cpu_set_t set;
    int cores;

    if (getenv("OPENBLAS_NUM_THREADS") || sched_getaffinity(0, sizeof set, &set)) {
        return;
    }
    cores = CPU_COUNT(&set) / session.topology.intra_size;
    openblas_set_num_threads(cores > 1 ? cores : 1);
}

/* Collective. */
static int agree_on_seed(void)
{
    session.seed = (unsigned long)session.options.seed;
    if (session.seed == 0) {
        session.seed = draw_seed();
    }
    return cmn_mpi_check(MPI_Bcast(&session.seed, 1, MPI_UNSIGNED_LONG, 0, session.topology.world),
                         "MPI_Bcast of the seed");
}

static int open_communicator(void)
{
    const char *why;

    session.communicator = cmn_communicator_choose(session.options.communicator, &session.topology,
                                                   &why);
    if (!session.communicator) {
        return -1;
    }
    if (session.communicator->open(&session.exchange, &session.topology)) {
        return cmn_fail_in("%s", session.communicator->name);
    }
    return 0;
}

static int start_mpi(int *argc, char ***argv)
{
    int provided = 0;

    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        fprintf(stderr, "cmn: MPI_Init_thread failed\n");
        exit(1);
    }
    session.on = 1;
    on_exit(finish, NULL);
    if (provided < MPI_THREAD_FUNNELED) {
        return cmn_fail("this MPI library cannot be used by a program with threads");
    }
    return cmn_topology_open(&session.topology);
}

void cmn_init(int *argc, char **argv)
{
    int result, key, on;

    if (*argc > 1 && !strcmp(argv[1], "cmn")) {
        exit(cmn_tools_run(*argc, argv));
    }
    cmn_options_default(&session.options);
    on = take_arguments(argc, argv, &result, &key);
    if (!on) {
        if (key) {
            fprintf(stderr, "cmn: a -cmn_ key was given without -cmn: add -cmn\n");
            exit(1);
        }
        warn_of_copies();
        return;
    }
    if (result < 0) {
        char reason[1024];
        snprintf(reason, sizeof reason, "%s", cmn_reason());
        check(start_mpi(argc, &argv));
        end_job(reason);
    }
    session.command = command_of(*argc, argv);
    check(start_mpi(argc, &argv));
    check(cmn_output_open(session.topology.rank, session.options.log));
    if (session.command == CMN_OTHER) {
        end_job("-cmn works with `classifier train` and `classifier valid`; this command would run "
                "as independent copies: leave -cmn and mpiexec away");
    }
    share_cores();
}

int cmn_rank(void)
{
    return session.on ? session.topology.rank : 0;
}

int cmn_size(void)
{
    return session.on ? session.topology.size : 1;
}

int cmn_rand(void)
{
    return session.on ? cmn_random_int() : rand();
}

/* ---- reading ---- */

static void read_keys(struct list *options)
{
    for (const node *n = options->front; n; n = n->next) {
        const kvp *pair = n->val;
        if (pair->key && !strncmp(pair->key, "cmn_", 4)) {
            check(cmn_options_set(&session.options, pair->key, pair->val ? pair->val : "", 0));
        }
    }
}

static void limit_images(void)
{
    size_t limit = cmn_images_default_limit(session.topology.intra_size);

    if (session.options.cache_mb >= 0) {
        limit = (size_t)session.options.cache_mb << 20;
    }
    cmn_images_limit(limit);
}

int cmn_batch(struct network *net, struct list *options, int batch)
{
    struct cmn_training *t;

    if (!session.on) {
        return batch;
    }
    read_keys(options);
    check(agree_on_seed());
    cmn_random_open(session.seed, session.topology.rank);
    if (session.options.report == CMN_REPORT_QUIET) {
        cmn_say_nothing();
    }
    limit_images();
    check(session.communicator ? 0 : open_communicator());
    t = calloc(1, sizeof *t);
    if (!t) {
        end_job("out of memory");
    }
    t->session = &session;
    t->net = net;
    net->cmn = t;
    trained = t;
    check(cmn_training_share(t, batch));
    return t->local;
}

int cmn_reads(void)
{
    return !session.on || session.topology.rank == 0;
}

void cmn_network(struct network *net, const char *cfg)
{
    if (session.on) {
        check(cmn_training_attach(net->cmn, cfg));
    }
}

void cmn_free(struct network *net)
{
    struct cmn_training *t = net->cmn;

    if (t) {
        cmn_training_detach(t);
        trained = trained == t ? NULL : trained;
        free(t);
        net->cmn = NULL;
    }
}

static int open_backup(void)
{
    int created = 0;

    if (session.topology.rank != 0) {
        return 0;
    }
    if (cmn_files_writable(session.backup, &created)) {
        return -1;
    }
    if (created) {
        cmn_say("made the backup folder %s", session.backup);
    }
    return 0;
}

void cmn_data(struct list *options)
{
    const char *backup, *train, *valid, *labels;

    if (!session.on || session.command != CMN_CLASSIFIER_TRAIN) {
        return;
    }
    backup = option_find_str(options, "backup", NULL);
    train = option_find_str(options, "train", NULL);
    valid = option_find_str(options, "valid", NULL);
    labels = option_find_str(options, "labels", NULL);
    snprintf(session.backup, sizeof session.backup, "%s", backup ? backup : "/backup/");
    snprintf(session.train_list, sizeof session.train_list, "%s", train ? train : "");
    check(open_backup());
    if (session.options.validate && valid && labels) {
        check(cmn_valid_open(&session.valid, valid, labels,
                             option_find_int_quiet(options, "classes", 2),
                             option_find_int_quiet(options, "top", 1)));
    }
}

/* Images are lines that are not blank, as in Darknet's get_paths. */
static size_t count_images(FILE *file)
{
    char *line = NULL;
    size_t bytes = 0, n = 0;

    while (getline(&line, &bytes, file) >= 0) {
        n += line[strspn(line, " \t\r\n")] != '\0';
    }
    free(line);
    rewind(file);
    return n;
}

FILE *cmn_fopen(const char *name)
{
    FILE *file;

    if (!session.on) {
        return fopen(name, "r");
    }
    file = cmn_files_share(&session.topology, name);
    if (file && !strcmp(name, session.train_list)) {
        session.train_images = count_images(file);
        if (trained) {
            cmn_training_epochs(trained);
        }
    }
    return file;
}

/* ---- loading ---- */

static _Thread_local struct {
    int active;
    size_t next;        /* number of the first sample that is not handed out yet */
    struct cmn_sample *sample;    /* those handed out last */
    size_t samples, at; /* how many, and how many of them were loaded */
} loader;

size_t cmn_draw(int n, int images)
{
    size_t first = 0;

    if (session.on) {
        check(cmn_training_draw(trained, (size_t)n, (size_t)images, &first));
    }
    return first;
}

void cmn_loader(size_t first)
{
    if (session.on) {
        loader.active = 1;
        loader.next = first;
        loader.at = loader.samples = 0;
    }
}

char **cmn_paths(char **paths, int n)
{
    char **mine;

    if (!session.on) {
        return NULL;
    }
    mine = calloc((size_t)n + 1, sizeof *mine);
    free(loader.sample);
    loader.sample = calloc((size_t)n + 1, sizeof *loader.sample);
    if (!mine || !loader.sample) {
        end_job("out of memory for a batch");
    }
    cmn_scatter_draw(trained->scatter, loader.next, (size_t)n, loader.sample);
    loader.next += (size_t)n;
    loader.samples = (size_t)n;
    loader.at = 0;
    for (int i = 0; i < n; i++) {
        mine[i] = paths[loader.sample[i].image];
    }
    return mine;
}

unsigned char *cmn_image(const char *file, int channels, int *w, int *h, int *c)
{
    if (!session.on) {
        return NULL;
    }
    if (loader.active && loader.at < loader.samples) {
        cmn_random_named(CMN_RANDOM_IMAGE, loader.sample[loader.at++].ticket);
        if (loader.at == loader.samples) {
            free(loader.sample);    /* the thread may end here */
            loader.sample = NULL;
            loader.at = loader.samples = 0;
        }
    }
    return cmn_images_find(file, channels, w, h, c);
}

void cmn_keep(const char *file, int channels, int w, int h, int c, const unsigned char *pixels)
{
    if (session.on) {
        cmn_images_keep(file, channels, w, h, c, pixels);
    }
}

/* ---- training ---- */

int cmn_images(struct network *net)
{
    const struct cmn_training *t = net->cmn;

    return t ? t->total : net->batch;
}

int cmn_pass(struct network *net)
{
    if (net->cmn) {
        check(cmn_training_pass(net->cmn));
    }
    return cmn_images(net);
}

int cmn_passed(struct network *net, int last)
{
    return net->cmn ? cmn_training_passed(net->cmn, last) : last;
}

void cmn_update(struct network *net, int *batch, float *momentum)
{
    if (net->cmn) {
        check(cmn_training_update(net->cmn, batch, momentum));
    }
}

float cmn_loss(struct network *net, float loss)
{
    struct cmn_training *t = net->cmn;

    if (!t) {
        return loss;
    }
    check(cmn_training_step_done(t));
    return t->mean_loss;
}

int cmn_writes(struct network *net)
{
    struct cmn_training *t = net->cmn;

    if (!t) {
        return 1;
    }
    check(cmn_gradients_average_statistics(&t->gradients, &session.topology));
    return session.topology.rank == 0;
}

int cmn_validate(struct network *net, char **paths, int n, char **labels, int classes, int top)
{
    struct cmn_valid_set set = {paths, n, labels, classes, top};
    const struct cmn_training *t = net->cmn;
    struct cmn_score score;

    if (!t) {
        return 0;
    }
    /* Darknet sets the batch to 1 before it validates; the layers still have room for more. */
    set_batch_network(net, t->local);
    check(cmn_evaluate(net, &set, t->local, &session.topology, &score));
    printf("%ld: top 1: %f, top %d: %f\n", score.images, (double)score.top1 / (double)score.images,
           top, (double)score.topk / (double)score.images);
    printf("validation: %ld images, %ld right, %ld in top %d, loss %f\n", score.images, score.top1,
           score.topk, top, score.loss);
    return 1;
}
