#include "cmn.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "option_list.h"

#include "mpi/device.h"
#include "mpi/files.h"
#include "data/image_cache.h"
#include "hooks/job.h"
#include "data/loader.h"
#include "base/log.h"
#include "report/report.h"
#include "trainer/trainer.h"
#include "base/status.h"
#include "watchdog/watchdog.h"

static struct cmn_trainer *trained; /* the network that the job trains */

/* ---- reading ---- */

static void read_keys(struct list *options)
{
    for (const node *n = options->front; n; n = n->next) {
        const kvp *pair = n->val;
        if (pair->key && !strncmp(pair->key, "cmn_", 4)) {
            cmn_check(cmn_options_set(&cmn_job.options, pair->key, pair->val ? pair->val : "", 0));
        }
    }
}

int cmn_rank_batch(struct network *net, struct list *options, int batch)
{
    struct cmn_trainer *t;

    if (!cmn_job.on) {
        return batch;
    }
    read_keys(options);
    cmn_device_agree(&cmn_job.topology, cmn_device_built() ? gpu_index : -1,
                     (int)cmn_job.options.share_gpus);
    cmn_check(cmn_session_configure(&cmn_job));
    cmn_watchdog_limit(cmn_job.options.timeout);
    if (cmn_job.topology.device >= 0) {
        cmn_end_first();
    }
    t = calloc(1, sizeof *t);
    if (!t) {
        cmn_check(cmn_fail("out of memory"));
    }
    t->session = &cmn_job;
    t->net = net;
    net->cmn = t;
    trained = t;
    cmn_check(cmn_trainer_split_batch(t, batch));
    return t->sequences;
}

int cmn_reads_weights(void)
{
    if (trained) {
        trained->weights_given = 1;
    }
    return !cmn_job.on || cmn_job.topology.rank == 0;
}

void cmn_after_load_network(struct network *net, const char *cfg)
{
    if (cmn_job.on) {
        cmn_status_compute("comparing and sharing the network");
        cmn_check(cmn_trainer_attach(net->cmn, cfg));
        cmn_check(cmn_trainer_resume(net->cmn));
        cmn_status_compute("reading lists and images");
    }
}

void cmn_before_free_network(struct network *net)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_trainer_detach(t);
        trained = trained == t ? NULL : trained;
        free(t);
        net->cmn = NULL;
    }
}

void cmn_end_report(void)
{
    if (trained) {
        cmn_trainer_checkpoint_close(trained);
        cmn_report_close(trained->report);
        trained->report = NULL;
    }
}

/* What follows depends on the file: ranks with different ones would part ways. */
static int compare_data(const struct list *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out) {
        return cmn_fail("out of memory");
    }
    for (const node *n = options->front; n; n = n->next) {
        const kvp *pair = n->val;
        fprintf(out, "%s=%s\n", pair->key, pair->val ? pair->val : "");
    }
    fclose(out);
    cmn_files_compare("data file", text, &cmn_job.topology);
    free(text);
    return 0;
}

void cmn_after_data_cfg(struct list *options)
{
    struct cmn_data_cfg d;

    if (!cmn_job.on) {
        return;
    }
    cmn_check(compare_data(options));
    if (cmn_job.command->does == CMN_TRAINS) {
        d.backup = option_find_str(options, "backup", NULL);
        d.train = option_find_str(options, "train", NULL);
        d.valid = option_find_str(options, "valid", NULL);
        d.labels = option_find_str(options, "labels", NULL);
        d.names = option_find_str(options, "names", NULL);
        d.classes = option_find_int_quiet(options, "classes", 0);
        d.top = option_find_int_quiet(options, "top", 1);
        /* Images with several tags are no classes: top-1 says nothing about them. */
        if (cmn_job.command->answer == CMN_CLASSES && option_find_int_quiet(options, "tag", 0)) {
            d.valid = NULL;
        }
        cmn_check(cmn_session_data(&cmn_job, &d));
        cmn_check(trained ? cmn_trainer_resume(trained) : 0);
    }
}

FILE *cmn_fopen(const char *name)
{
    FILE *file;

    if (!cmn_job.on) {
        return fopen(name, "r");
    }
    cmn_status_file(cmn_job.topology.rank == 0 ? name : NULL);
    file = cmn_files_broadcast(&cmn_job.topology, name);
    cmn_status_file(NULL);
    if (file && !strcmp(name, cmn_job.train_list)) {
        cmn_job.train_images = cmn_files_count_lines(file);
        if (trained) {
            cmn_check(cmn_trainer_epochs(trained));
            cmn_trainer_list(trained, file);
        }
    }
    return file;
}

void cmn_samples_in_memory(size_t rows)
{
    char text[32];

    if (!cmn_job.on) {
        return;
    }
    snprintf(text, sizeof text, "%zu\n", rows);
    cmn_files_compare("number of samples", text, &cmn_job.topology);
    cmn_job.train_images = rows;
    cmn_check(cmn_trainer_epochs(trained));
}

/* ---- loading ---- */

size_t cmn_next_batch(int n, int images)
{
    size_t first = 0;

    if (cmn_job.on) {
        cmn_check(cmn_trainer_next_batch(trained, (size_t)n, (size_t)images, &first));
    }
    return first;
}

void cmn_rewind_batch(void)
{
    if (cmn_job.on) {
        cmn_trainer_rewind_batch(trained);
    }
}

int cmn_next_sample(int rows)
{
    size_t row;

    if (!cmn_job.on) {
        return rand() % rows;
    }
    cmn_check(cmn_trainer_next_sample(trained, (size_t)rows, &row));
    return (int)row;
}

void cmn_seed_sequence(struct network *net, int i)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_seed_sequence(net->cmn, i));
    }
}

void cmn_loader_load(size_t first)
{
    if (cmn_job.on) {
        cmn_loader_begin(first);
    }
}

char **cmn_loader_paths(char **paths, int n)
{
    char **mine;

    if (!cmn_job.on) {
        return NULL;
    }
    atomic_store(&trained->paths, paths);
    mine = cmn_sample_paths(trained->scatter, paths, n);
    cmn_check(mine ? 0 : -1);
    return mine;
}

unsigned char *cmn_cached_image(const char *file, int channels, int *w, int *h, int *c)
{
    unsigned char *kept;

    if (!cmn_job.on) {
        return NULL;
    }
    cmn_loader_next_image();
    kept = cmn_image_cache_find(file, channels, w, h, c);
    cmn_status_file(kept ? NULL : file);
    return kept;
}

void cmn_cache_image(const char *file, int channels, int w, int h, int c,
                     const unsigned char *pixels)
{
    if (cmn_job.on) {
        cmn_status_file(NULL);
        cmn_image_cache_keep(file, channels, w, h, c, pixels);
    }
}

/* ---- training ---- */

int cmn_global_batch(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t ? t->total : net->batch;
}

int cmn_before_micro_batch(struct network *net)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_before_micro_batch(net->cmn));
    }
    return cmn_global_batch(net);
}

int cmn_after_micro_batch(struct network *net, int last)
{
    return net->cmn ? cmn_trainer_after_micro_batch(net->cmn) : last;
}

void cmn_after_forward(struct network *net, int i)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_after_forward(net->cmn, i));
    }
}

void cmn_after_backward(struct network *net, int i)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_after_backward(net->cmn, i));
    }
}

void cmn_progress(void)
{
    if (trained) {
        cmn_check(cmn_trainer_progress(trained));
    }
}

int cmn_syncs_batch_norm(struct network *net)
{
    return net->cmn && cmn_trainer_syncs(net->cmn);
}

void cmn_sync_statistics(struct network *net, float *mean, float *variance, int n, int count)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_norm(net->cmn, CMN_FORWARD, mean, variance, n, count));
    }
}

void cmn_sync_statistic_deltas(struct network *net, float *mean_delta, float *variance_delta, int n,
                               int count)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_norm(net->cmn, CMN_BACKWARD, mean_delta, variance_delta, n, count));
    }
}

int cmn_before_update(struct network *net, int *batch, float *momentum, float rate, float decay)
{
    struct cmn_rule rule = {*batch, rate, *momentum, decay, 0};

    if (net->cmn) {
        cmn_status_wait("the sum of the gradients");
        cmn_check(cmn_trainer_update(net->cmn, &rule));
        cmn_status_wait(NULL);
        *batch = rule.batch;
        *momentum = rule.momentum;
    }
    return rule.done;
}

float cmn_after_batch(struct network *net, float loss)
{
    struct cmn_trainer *t = net->cmn;

    if (!t) {
        return loss;
    }
    cmn_check(cmn_trainer_step_done(t));
    cmn_status_compute("loading images");
    return t->mean_loss;
}

int cmn_before_save_weights(struct network *net, const char *file)
{
    struct cmn_trainer *t = net->cmn;

    if (!t) {
        return 1;
    }
    cmn_report_clear(t->report);
    t->save_began = cmn_clock();
    cmn_status_wait("the averages that are made for saving");
    cmn_check(cmn_trainer_swap_in_averages(t));
    cmn_status_wait(NULL);
    if (cmn_job.topology.rank == 0) {
        cmn_check(cmn_trainer_untrained(t, file));
        cmn_check(cmn_trainer_worth_saving(t));
    } else {
        cmn_check(cmn_trainer_saved(t));
        return 0;
    }
    cmn_status_compute("writing weights");
    return 1;
}

void cmn_after_save_weights(struct network *net)
{
    if (net->cmn) {
        cmn_check(cmn_trainer_saved(net->cmn));
    }
}

int cmn_validate_classifier(struct network *net, char **paths, int n, char **labels, int classes,
                            int top)
{
    struct cmn_labelled_images set = {paths, n, labels, classes, top, 0};
    const struct cmn_trainer *t = net->cmn;
    struct cmn_score score;

    if (!t) {
        return 0;
    }
    cmn_status_compute("evaluation");
    /* Darknet sets the batch to 1 before it validates; the layers still have room for more. */
    set_batch_network(net, t->local);
    cmn_evaluate(cmn_net_of(net), &set, t->local, &cmn_job.topology, &score);
    printf("%ld: top 1: %f, top %d: %f\n", score.images, (double)score.top1 / (double)score.images,
           top, (double)score.topk / (double)score.images);
    printf("validation: %ld images, %ld right, %ld in top %d, loss %f\n", score.images, score.top1,
           score.topk, top, score.loss);
    return 1;
}
