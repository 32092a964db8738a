/* The calls of cmn.h from Darknet's parser, loaders, trainers and layers. */
#include "cmn.h"

#include <cblas.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/debug.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/values.h"
#include "checkpoint/reader.h"
#include "config/pairs.h"
#include "data/image_cache.h"
#include "data/labels.h"
#include "data/loader.h"
#include "data/pixels.h"
#include "data/scatter.h"
#include "engine/nhwc_layers.h"
#include "engine/convolution.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/gpu_batch.h"
#include "engine/gpu_convolution.h"
#include "engine/products.h"
#include "hooks/job.h"
#include "mpi/consistency.h"
#include "mpi/device.h"
#include "mpi/files.h"
#include "trainer/sync_batch_norm.h"
#include "trainer/trainer.h"
#include "trainer/weights_file.h"
#include "watchdog/watchdog.h"

/* ---- cfg and network ---- */

/* Ends the job if a key needs hooks that this tree of Darknet lacks. */
static void refuse_of_tree(void)
{
    char tree[64];

    snprintf(tree, sizeof tree, "%s Darknet", cmn_tree.whose);
    if (cmn_job.command->does == CMN_TRAINS && !cmn_tree.has_all_hooks &&
        (cmn_pairs_check_trait(&cmn_job.options, CMN_LACKS_HOOKS, tree) ||
         (cmn_job.topology.device >= 0 &&
          cmn_pairs_check_trait(&cmn_job.options, CMN_LACKS_GPU_HOOKS, tree)))) {
        cmn_fatal_reason();
    }
}

int cmn_rank_batch(struct network *net, int batch, int *subdivisions)
{
    char *words[] = {NULL, NULL, NULL};
    const char *why;

    if (!cmn_job.on ||
        (cmn_job.command->does == CMN_TRAINS && cmn_net_traits(cmn_net_of(net)).predicts_only)) {
        return batch;
    }
    cmn_read_cfg_keys();
    cmn_device_agree(&cmn_job.topology, cmn_device_built() ? gpu_index : -1);
    refuse_of_tree();
    if (cmn_job.command->does == CMN_TRAINS && cmn_job.topology.device < 0) {
        cmn_convolution_use(!cmn_debug_word("ONEDNN"));
    }
    cmn_session_configure(&cmn_job);
    cmn_watchdog_limit(cmn_job.options.timeout);
    if (cmn_job.topology.device >= 0) {
        cmn_end_job_before_libraries();
    }
    words[0] = (char *)cmn_job.command->driver;
    words[1] = (char *)cmn_job.command->verb;
    why = cmn_job.command->does == CMN_TRAINS ? cmn_tree_refusal(net, words) : NULL;
    if (why) {
        cmn_fatal("%s", why);
    }
    net->cmn = cmn_job.trainer = cmn_trainer_open(&cmn_job, cmn_net_of(net), batch, *subdivisions);
    *subdivisions = cmn_job.trainer->feed.share.micro_batches;
    return cmn_job.trainer->feed.share.local;
}

int cmn_reads_weights(void)
{
    if (cmn_job.trainer) {
        cmn_job.trainer->model.weights_given = 1;
    }
    return !cmn_job.on || cmn_job.topology.rank == 0;
}

void cmn_check_weights(struct network *net, const char *file, int revision)
{
    const char *why = cmn_job.on ? cmn_net_weights_refusal(net, revision) : NULL;

    if (why) {
        fputc('\n', stderr); /* Darknet has printed a part of a line */
        cmn_fatal("%s: %s", file, why);
    }
}

/* Warns of everything that the cfg asks for and this tree of Darknet ignores on the CPU. */
static void tell_left_out(const struct network *net, const char *cfg)
{
    char text[256];

    cmn_tree_leaves_out(net, cmn_net_on_gpu(cmn_net_of((struct network *)net)), text, sizeof text);
    if (text[0] && cmn_job.topology.rank == 0) {
        cmn_warn("%s: no effect on the CPU, for this Darknet knows them only on GPUs: %s", cfg,
                 text);
    }
}

void cmn_after_load_network(struct network *net, const char *cfg)
{
    if (cmn_job.on) {
        tell_left_out(net, cfg);
        cmn_status_compute("comparing and sharing the network");
        cmn_trainer_attach(net->cmn, cmn_net_of(net), cfg);
        cmn_status_compute("reading lists and images");
    }
}

static int trains_on_gpu(const struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t && t->session->topology.device >= 0;
}

void cmn_before_free_network(struct network *net)
{
    if (net->cmn) {
        cmn_job.trainer = cmn_job.trainer == net->cmn ? NULL : cmn_job.trainer;
        if (trains_on_gpu(net)) {
            cmn_gpu_batch_close();
            cmn_gpu_convolution_close();
        }
        cmn_trainer_close(net->cmn);
        net->cmn = NULL;
    }
}

int cmn_checkpoint_follows(FILE *weights)
{
    return cmn_checkpoint_follows_weights(weights);
}

/* ---- data files ---- */

void cmn_require_same_file(const char *file)
{
    if (cmn_job.on) {
        cmn_compare_file(&cmn_job.topology, file);
    }
}

int cmn_samples_in_memory(size_t rows)
{
    char text[32];

    if (cmn_job.on) {
        snprintf(text, sizeof text, "%zu\n", rows);
        cmn_files_compare("number of samples", text, &cmn_job.topology);
        cmn_job.train_images = rows;
        cmn_feed_set_epochs(&cmn_job.trainer->feed);
    }
    return cmn_job.on;
}

/* ---- loading ---- */

size_t cmn_next_batch(int *n, int images)
{
    size_t wanted = (size_t)*n, first = 0;

    if (cmn_job.on) {
        first = cmn_feed_next_batch(&cmn_job.trainer->feed, &wanted, (size_t)images);
        *n = (int)wanted;
    }
    return first;
}

void cmn_rewind_batch(void)
{
    if (cmn_job.on) {
        cmn_feed_rewind(&cmn_job.trainer->feed);
    }
}

int cmn_next_sample(int rows)
{
    return cmn_job.on ? (int)cmn_feed_next_sample(&cmn_job.trainer->feed, (size_t)rows)
                      : rand() % rows;
}

void cmn_loader_load(size_t first)
{
    if (cmn_job.on) {
        cmn_loader_begin(first);
    }
}

int cmn_begin_sample(size_t number)
{
    if (cmn_job.on) {
        cmn_loader_begin_sample(cmn_job.trainer->feed.sampler, number);
    }
    return cmn_job.on;
}

int cmn_sample_image(char **paths, int images)
{
    if (!cmn_job.on) {
        return rand() % images;
    }
    atomic_store(&cmn_job.trainer->feed.paths, paths);
    return (int)cmn_loader_draw_image((size_t)images);
}

char **cmn_loader_paths(char **paths, int n)
{
    if (!cmn_job.on) {
        return NULL;
    }
    atomic_store(&cmn_job.trainer->feed.paths, paths);
    return cmn_loader_next_paths(cmn_job.trainer->feed.sampler, paths, n);
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

const char *cmn_data_path(const char *name)
{
    return cmn_scatter_path(name);
}

/* Tells of the first box in which Darknet sees something else than its file says. */
static void tell_fault(const char *file, int box, const struct cmn_label *l)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const char *fault = cmn_box_fault(l->x, l->y, l->width, l->height);

    if (fault && fault != cmn_box_reaches_out && !atomic_flag_test_and_set(&told)) {
        cmn_warn_here(
            "%s: box %d, %g x %g around %g, %g: %s. 'darknet cmn doctor' lists all such boxes",
            file, box, (double)l->width, (double)l->height, (double)l->x, (double)l->y, fault);
    }
}

void cmn_without_labels(const char *file)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (cmn_job.on && !atomic_flag_test_and_set(&told)) {
        cmn_warn_here(
            "%s: no label file: its image counts as one without objects. 'darknet cmn doctor' "
            "lists all such images",
            file);
    }
}

float *cmn_read_labels(const char *file, int *n)
{
    enum { NUMBERS = 5 };
    struct cmn_label *label;
    float *all;

    if (!cmn_job.on && cmn_tree.has_more) {
        return NULL;
    }
    if (cmn_job.on && !cmn_label_name_ends(file)) { /* the image's own name, unchanged */
        char name[CMN_LABEL_FILE];
        const char *why = cmn_label_file(file, name);
        cmn_fatal("%s: %s", file, why ? why : "the name leads to no label file");
    }
    label = cmn_labels_read(file, n);
    if (cmn_job.on) {
        cmn_check_labels(file, label, *n);
    }
    all = cmn_calloc((size_t)*n * NUMBERS + 1, sizeof *all);
    for (int i = 0; i < *n; i++) {
        const struct cmn_label *l = &label[i];
        memcpy(all + (size_t)i * NUMBERS,
               (float[NUMBERS]){(float)l->class, l->x, l->y, l->width, l->height},
               NUMBERS * sizeof *all);
        if (cmn_job.on) {
            tell_fault(file, i + 1, l);
        }
    }
    free(label);
    return all;
}

void cmn_reads_image(const char *file)
{
    if (cmn_job.on) {
        cmn_status_file(file);
    }
}

void cmn_cache_image(const char *file, int channels, int w, int h, int c,
                     const unsigned char *pixels)
{
    if (cmn_job.on) {
        cmn_status_file(NULL);
        cmn_image_cache_keep(file, channels, w, h, c, pixels);
    }
}

unsigned char *cmn_load_image(const char *file, int channels, int *w, int *h, int *c,
                              const char **reason)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    unsigned char *pixels = cmn_cached_image(file, channels, w, h, c);

    *reason = NULL;
    if (!pixels && (cmn_job.on || !cmn_tree.has_more)) {
        pixels = cmn_pixels_load(cmn_data_path(file), channels, w, h, c, reason);
        if (pixels && cmn_job.on && cmn_pixels_turned() && !atomic_flag_test_and_set(&told)) {
            cmn_warn_here(CMN_TURNED ". 'darknet cmn doctor' lists all such images", file);
        }
        if (pixels) {
            cmn_cache_image(file, channels, *w, *h, *c, pixels);
        }
    }
    return pixels;
}

void cmn_check_image(const char *file)
{
    const char *reason = cmn_job.on ? cmn_pixels_cut(cmn_data_path(file)) : NULL;

    if (reason) {
        cmn_fatal("Cannot load image \"%s\": %s", file, reason);
    }
}

/* ---- steps ---- */

int cmn_step_images(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t ? (int)cmn_feed_step_images(&t->feed) : net->batch * net->subdivisions;
}

int cmn_before_micro_batch(struct network *net)
{
    struct cmn_trainer *t = net->cmn;
    int images;

    if (!t) {
        return net->batch;
    }
    cmn_network(t->model.net)->input = net->input;
    cmn_network(t->model.net)->truth = net->truth;
    images = cmn_trainer_before_micro_batch(t);
    cmn_tree_update_copy(net, cmn_network(t->model.net)); /* validation resizes the network */
    return images;
}

int cmn_has_micro_batch(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return !t || !t->feed.share.spare;
}

int cmn_after_micro_batch(struct network *net, int last)
{
    struct cmn_trainer *t = net->cmn;

    return t ? cmn_step_after_micro_batch(&t->step) : last;
}

int cmn_sends_batch(struct network *net, const float *input, size_t inputs, const float *truth,
                    size_t truths)
{
    return trains_on_gpu(net) && cmn_gpu_batch_send(net, (struct cmn_host_floats){input, inputs},
                                                    (struct cmn_host_floats){truth, truths});
}

size_t cmn_batch_loaded(int images, float **input, int inputs, float **truth, int truths)
{
    size_t n = (size_t)images;

    return cmn_job.on && cmn_job.topology.device >= 0
               ? cmn_gpu_batch_ahead((struct cmn_host_rows){input, n, (size_t)inputs},
                                     (struct cmn_host_rows){truth, n, (size_t)truths})
               : 0;
}

void cmn_takes_batch(struct network *net, size_t number)
{
    if (trains_on_gpu(net)) {
        cmn_gpu_batch_take(number);
    }
}

enum { SHARES = 64, SUMS = 8 };

/* A thread's part of the images. */
struct share {
    void (*work)(void *self, int first, int end, float *sums);
    void *self;
    int first, end, is_thread;
    float sums[SUMS];
    pthread_t thread;
};

static void *work_on_share(void *of)
{
    struct share *s = of;

    s->work(s->self, s->first, s->end, s->sums);
    return NULL;
}

void cmn_share_images(int images, void (*work)(void *self, int first, int end, float *sums),
                      void *self, float *sums, int n)
{
    int on_gpu = cmn_job.on && cmn_job.topology.device >= 0;
    int shares = on_gpu ? openblas_get_num_threads() : 1;
    struct share share[SHARES];

    shares = shares > images ? images : shares > SHARES ? SHARES : shares;
    for (int i = shares - 1; i >= 0; i--) {
        struct share *s = &share[i];
        *s = (struct share){.work = work,
                            .self = self,
                            .first = images * i / shares,
                            .end = images * (i + 1) / shares};
        s->is_thread = i > 0 && !pthread_create(&s->thread, NULL, work_on_share, s);
        if (!s->is_thread) {
            work_on_share(s);
        }
    }
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int i = 0; i < shares; i++) {
        if (share[i].is_thread) {
            pthread_join(share[i].thread, NULL);
        }
        for (int k = 0; k < n; k++) {
            sums[k] += share[i].sums[k];
        }
    }
}

float *cmn_locked_memory(struct network *net, size_t n)
{
    return trains_on_gpu(net) ? cmn_gpu_batch_memory(n) : NULL;
}

int cmn_fetches_later(struct network *net, const float *device, float *host, size_t n, float *sum)
{
    int unread = !sum && cmn_tree_layer(&net->layers[net->n - 1]).finds_boxes;

    return net->train && trains_on_gpu(net) && (unread || cmn_gpu_batch_ask(device, host, n, sum));
}

void cmn_after_forward(struct network *net, int i)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_step_after_forward(&t->step, i);
    }
}

void cmn_after_backward(struct network *net, int i)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_step_after_backward(&t->step, i);
    }
}

void cmn_progress(void)
{
    if (cmn_job.trainer) {
        cmn_step_progress(&cmn_job.trainer->step);
    }
}

int cmn_convolve(const struct layer *l, enum cmn_convolution_result result, float *input,
                 float *output)
{
    struct cmn_tree_view view = cmn_tree_view(l);
    const struct cmn_convolution_data data = {.input = input,
                                              .weights = result == CMN_WEIGHTS ? l->weight_updates
                                                                               : l->weights,
                                              .output = output};

    cmn_progress();
    if (result == CMN_INPUT && cmn_tree.convolution_overwrites) {
        memset(input, 0, (size_t)l->inputs * (size_t)l->batch * sizeof *input);
    }
    return view.convolves && cmn_convolution_multiply(&view.convolution, (int)result, &data);
}

int cmn_overwrites_delta(struct network *net, int i)
{
    const struct cmn_trainer *t = net->cmn;

    return t && cmn_nhwc_layers_overwrite(t->model.net, i);
}

int cmn_multiply(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
    const struct cmn_product product = {.ta = ta,
                                        .tb = tb,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .alpha = alpha,
                                        .beta = beta,
                                        .a = a,
                                        .b = b,
                                        .c = c,
                                        .lda = lda,
                                        .ldb = ldb,
                                        .ldc = ldc};

    return m && n && k && cmn_products_multiply(&product);
}

int cmn_syncs_batch_norm(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t && cmn_sync_batch_norm_runs(&t->step);
}

void cmn_sync_statistics(struct network *net, float *mean, float *variance, int n, int count)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_sync_batch_norm_forward(&t->step, mean, variance, n, count);
    }
}

void cmn_sync_statistic_deltas(struct network *net, float *mean_delta, float *variance_delta, int n,
                               int count)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_sync_batch_norm_backward(&t->step, mean_delta, variance_delta, n, count);
    }
}

int cmn_before_update(struct network *net, int *batch, float *momentum, float rate, float decay)
{
    struct cmn_rule rule = {*batch, rate, *momentum, decay, 0};
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_step_update(&t->step, &rule);
        *batch = rule.batch;
        *momentum = rule.momentum;
    }
    return rule.done;
}

int cmn_leaves_out(struct network *net, int i, int leaves_out)
{
    struct cmn_trainer *t = net->cmn;

    if (t && leaves_out) {
        cmn_optimizer_leaves_out(&t->model.optimizer, i);
    }
    return leaves_out;
}

float cmn_after_batch(struct network *net, float loss)
{
    struct cmn_trainer *t = net->cmn;

    return t ? cmn_step_after_batch(&t->step, loss) : loss;
}

int cmn_last_iteration(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t ? cmn_net_last_iteration(t->model.net) : net->max_batches;
}

int cmn_steps_done(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    /* Callers increment this int and look at its last digits. */
    return t ? (int)((t->step.kept.steps + t->step.done) % 1000000000) : 0;
}

/* ---- evaluations by the trainer ---- */

void cmn_before_evaluation(struct network *net)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_status_compute("evaluation");
        cmn_model_swap_in_validated(&t->model);
        cmn_job.evaluating = 1;
    }
}

float cmn_after_evaluation(struct network *net, float result)
{
    struct cmn_trainer *t = net->cmn;

    if (t) {
        cmn_job.evaluating = 0;
        cmn_broadcast(&result, sizeof result);
        cmn_model_restore_own(&t->model);
    }
    return result;
}

/* ---- saving ---- */

struct saved {
    struct network *net;
    int cutoff, average;
};

static void write_saved(void *what, FILE *out)
{
    struct saved *s = what;

    cmn_tree_write_weights(s->net, out, s->cutoff, s->average);
}

const char *cmn_save_weights(struct network *net, const char *file, int cutoff, int average)
{
    struct saved saved = {net, cutoff, average};
    int reason;

    if (net->cmn && !cmn_trainer_before_save(net->cmn, file)) {
        return NULL;
    }
    fprintf(stderr, "Saving weights to %s\n", file);
    reason = cmn_weights_file_replace(file, write_saved, &saved);
    if (!reason && net->cmn) {
        cmn_trainer_after_save(net->cmn);
    }
    if (!reason || (net->cmn && cmn_trainer_save_failed(net->cmn, file, reason))) {
        return NULL;
    }
    return reason == ELOOP ? "a symbolic link of another user" : strerror(reason);
}
