#include "cmn.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CMN_KEEP_RAND /* cmn_rand() itself needs it */
#include "darknet.h"
#include "option_list.h"

#include "arguments.h"
#include "files.h"
#include "images.h"
#include "loader.h"
#include "log.h"
#include "output.h"
#include "random.h"
#include "report/report.h"
#include "session.h"
#include "tools/tools.h"
#include "training.h"

static struct cmn_session session;
static struct cmn_training *trained; /* the network that the job trains */

/* ---- the end ---- */

/* Seconds that a rank without the word waits for its end, and that MPI_Abort may take. */
enum { AWAIT_THE_END = 5, ABORT_AT_MOST = 5 };

/* The only place that ends a job before its time. A loader thread may come here while the main
 * thread is inside MPI: MPI_Abort is called all the same, as there is no other way to reach the
 * other ranks, and should it hang the alarm ends this process, and mpiexec the others. */
static void end_job(const char *message)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    char line[2048];

    if (pthread_mutex_trylock(&once)) {
        for (;;) {
            pause(); /* another thread of this process is ending the job already */
        }
    }
    fflush(stdout);
    cmn_log_prefix(line, sizeof line - 1024);
    snprintf(line + strlen(line), sizeof line - strlen(line), "%.1000s\n", message);
    sleep(cmn_output_last_word(line, session.topology.inter_rank) ? CMN_LAST_WORD_WAIT
                                                                  : AWAIT_THE_END);
    signal(SIGALRM, SIG_DFL);
    alarm(ABORT_AT_MOST);
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
    cmn_session_close(&session);
    MPI_Finalize();
    if (session.stop_signal) {
        _exit(128 + session.stop_signal);
    }
}

/* ---- the start ---- */

static int start_mpi(int *argc, char ***argv)
{
    int provided = 0;

    if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        fprintf(stderr, "cmn: MPI_Init_thread failed\n");
        exit(1);
    }
    session.on = 1;
    on_exit(finish, NULL);
    if (provided < MPI_THREAD_FUNNELED) {
        return cmn_fail("this MPI library cannot be used by a program with threads");
    }
    return cmn_session_open(&session);
}

void cmn_init(int *argc, char **argv)
{
    struct cmn_arguments found;
    char reason[1024] = "";

    if (*argc > 1 && !strcmp(argv[1], "cmn")) {
        exit(cmn_tools_run(*argc, argv));
    }
    cmn_options_default(&session.options);
    if (cmn_arguments_take(argc, argv, &session.options, &found)) {
        snprintf(reason, sizeof reason, "%s", cmn_reason());
    }
    if (!found.on) {
        if (found.key) {
            if (cmn_arguments_launch_rank() <= 0) {
                fprintf(stderr, "cmn: a -cmn_ key was given without -cmn: add -cmn\n");
            }
            exit(1);
        }
        cmn_arguments_warn_of_copies();
        return;
    }
    session.command = found.command;
    check(start_mpi(argc, &argv));
    if (reason[0]) {
        end_job(reason);
    }
    if (session.command == CMN_OTHER) {
        end_job(
            "-cmn works with `classifier train` and `classifier valid`; any other command would "
            "run as independent copies: leave -cmn and mpiexec away");
    }
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

int cmn_batch(struct network *net, struct list *options, int batch)
{
    struct cmn_training *t;

    if (!session.on) {
        return batch;
    }
    read_keys(options);
    check(cmn_session_configure(&session));
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

/* What follows depends on the file: ranks with different ones would part ways. */
static int compare_data(const struct list *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int result;

    if (!out) {
        return cmn_fail("out of memory");
    }
    for (const node *n = options->front; n; n = n->next) {
        const kvp *pair = n->val;
        fprintf(out, "%s=%s\n", pair->key, pair->val ? pair->val : "");
    }
    fclose(out);
    result = cmn_files_compare("data file", text, &session.topology);
    free(text);
    return result;
}

void cmn_data(struct list *options)
{
    /* Images with several tags are no classes: top-1 says nothing about them. */
    int tags = option_find_int_quiet(options, "tag", 0);

    if (!session.on) {
        return;
    }
    check(compare_data(options));
    if (session.command == CMN_CLASSIFIER_TRAIN) {
        check(cmn_session_data(&session, option_find_str(options, "backup", NULL),
                               option_find_str(options, "train", NULL),
                               tags ? NULL : option_find_str(options, "valid", NULL),
                               option_find_str(options, "labels", NULL),
                               option_find_int_quiet(options, "classes", 2),
                               option_find_int_quiet(options, "top", 1)));
    }
}

FILE *cmn_fopen(const char *name)
{
    FILE *file;

    if (!session.on) {
        return fopen(name, "r");
    }
    file = cmn_files_share(&session.topology, name);
    if (file && !strcmp(name, session.train_list)) {
        session.train_images = cmn_files_count_lines(file);
        if (trained) {
            check(cmn_training_epochs(trained));
        }
    }
    return file;
}

/* ---- loading ---- */

size_t cmn_draw(int n, int images)
{
    size_t first = 0;

    if (session.on) {
        check(cmn_training_draw(trained, (size_t)n, (size_t)images, &first));
    }
    return first;
}

void cmn_undraw(void)
{
    if (session.on) {
        cmn_training_undraw(trained);
    }
}

void cmn_loader(size_t first)
{
    if (session.on) {
        cmn_loader_start(first);
    }
}

char **cmn_paths(char **paths, int n)
{
    char **mine;

    if (!session.on) {
        return NULL;
    }
    mine = cmn_loader_paths(trained->scatter, paths, n);
    check(mine ? 0 : -1);
    return mine;
}

unsigned char *cmn_image(const char *file, int channels, int *w, int *h, int *c)
{
    if (!session.on) {
        return NULL;
    }
    cmn_loader_next_image();
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
    return net->cmn ? cmn_training_passed(net->cmn) : last;
}

int cmn_update(struct network *net, int *batch, float *momentum, float rate, float decay)
{
    struct cmn_rule rule = {*batch, rate, *momentum, decay, 0};

    if (net->cmn) {
        check(cmn_training_update(net->cmn, &rule));
        *batch = rule.batch;
        *momentum = rule.momentum;
    }
    return rule.done;
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
    cmn_report_clear(t->report);
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
