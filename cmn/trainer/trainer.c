#include "trainer/trainer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "mpi/files.h"
#include "base/log.h"
#include "engine/batch_norm.h"
#include "engine/replicas.h"
#include "base/random.h"
#include "report/report.h"
#include "report/trace.h"
#include "data/sampler.h"
#include "base/stop_request.h"
#include "base/timeline.h"
#include "base/status.h"

int cmn_trainer_classifies(const struct cmn_trainer *t)
{
    return t->net->truths == t->net->outputs && !t->net->hierarchy;
}

static int meet(const struct cmn_trainer *t)
{
    return cmn_mpi_check(MPI_Barrier(t->session->topology.world), "MPI_Barrier");
}

int cmn_trainer_attach(struct cmn_trainer *t, const char *cfg)
{
    struct cmn_session *s = t->session;
    char *name;

    t->w = t->net->w;
    t->h = t->net->h;
    name = basecfg((char *)cfg);
    snprintf(t->name, sizeof t->name, "%s", name);
    free(name);
    name = strrchr(cfg, '/');
    snprintf(t->cfg, sizeof t->cfg, "%s", name ? name + 1 : cfg);
    cmn_trainer_rate(t);
    cmn_optimizer_plan(&t->optimizer, &s->topology, &s->options, s->communicator, s->exchange,
                       t->net->adam);
    cmn_gradients_open(&t->gradients, cmn_net_of(t->net), &t->optimizer.communicator, s->exchange);
    t->attached = 1;
    t->gradients.images = t->local;
    cmn_optimizer_open(&t->optimizer, &t->gradients, t->net->n);
    if (meet(t)) { /* weights that ranks have in common are filled by one of them, and then sent */
        return -1;
    }
    t->cfg_text = cmn_files_cfg_text(cfg);
    cmn_replicas_compare(&t->gradients, cmn_net_of(t->net), t->cfg_text, &s->topology);
    cmn_replicas_broadcast(&t->gradients, cmn_net_of(t->net), &s->topology);
    if (meet(t)) {
        return -1;
    }
    cmn_optimizer_begin(&t->optimizer);
    return cmn_trainer_norm_open(t);
}

void cmn_trainer_detach(struct cmn_trainer *t)
{
    cmn_trainer_checkpoint_close(t);
    if (t->attached) {
        cmn_optimizer_close(&t->optimizer);
        cmn_gradients_close(&t->gradients);
    }
    cmn_batch_norm_close(t->norm);
    cmn_sampler_close(t->scatter);
    cmn_report_close(t->report);
    cmn_trace_close(t->trace);
    free(t->layer);
    free(t->statistics);
    free(t->cfg_text);
    t->cfg_text = NULL;
    t->statistics = NULL;
    t->norm = NULL;
    t->trace = NULL;
    t->layer = NULL;
    t->scatter = NULL;
    t->report = NULL;
    t->attached = 0;
}

/* What a person wants to know before the first step. */
static void introduce(const struct cmn_trainer *t)
{
    const struct cmn_session *s = t->session;
    char dtype[16], how[256];

    snprintf(dtype, sizeof dtype, "%s", cmn_options_word(&s->options, "cmn_allreduce_dtype"));
    cmn_optimizer_describe(&t->optimizer, how, sizeof how);
    cmn_say(
        "%d rank%s on %d node%s%s, communicator %s (%s), %s%s, batch %d per rank%s, global batch "
        "%zu, scatter %s, seed %lu",
        s->topology.size, s->topology.size == 1 ? "" : "s", s->topology.inter_size,
        s->topology.inter_size == 1 ? "" : "s", s->topology.device < 0 ? "" : ", on GPUs",
        s->communicator->name, s->communicator_why, dtype, how, t->local * t->net->subdivisions,
        t->total == t->local * s->topology.size ? "" : " (rank 0; shares differ by one)",
        cmn_trainer_step_images(t), cmn_options_word(&s->options, "cmn_scatter"), s->seed);
    if (!s->communicator->sums && s->topology.size > 1) {
        cmn_say("communicator %s exchanges nothing: the result of this training is worthless",
                s->communicator->name);
    }
    if (s->options.validate && !s->valid_list[0] && s->command->answer != CMN_NO_ANSWER) {
        cmn_say("no `valid` list in the .data file: training without validation");
    }
}

static int start(struct cmn_trainer *t)
{
    struct cmn_session *s = t->session;

    if (s->options.epochs && !s->train_images) {
        return cmn_fail("cmn_epochs=%ld: the length of the training list is not known",
                        s->options.epochs);
    }
    if (cmn_trainer_validates(t)) {
        cmn_require_single_images(cmn_net_of(t->net));
    }
    t->started = 1;
    t->first_step = (long)get_current_batch(t->net);
    t->epoch = s->train_images ? (long)(*t->net->seen / s->train_images) : 0;
    cmn_stop_catch();
    t->began = t->sums.since = t->left = cmn_clock();
    if (cmn_trainer_resumed(t)) {
        return -1;
    }
    introduce(t);
    cmn_trainer_tell_rate(t);
    if (s->topology.rank == 0 && cmn_trainer_report(t)) {
        return -1;
    }
    return cmn_trainer_timeline(t) || cmn_trainer_pending_validation(t) ? -1 : 0;
}

int cmn_trainer_before_micro_batch(struct cmn_trainer *t)
{
    if (!t->attached) {
        return cmn_fail("the network was not loaded by load_network, so its ranks never met");
    }
    if (!t->started && start(t)) {
        return -1;
    }
    t->pass_began = cmn_clock();
    if (t->pass == 0) {
        t->step_began = t->pass_began;
        t->sums.load += t->pass_began - t->left;
        cmn_timeline_span(CMN_SPAN_LOAD, -1, t->left, t->pass_began);
    }
    t->mark = t->pass_began;
    t->looked = 0;
    cmn_status_compute("forward");
    cmn_status_iteration(t->first_step + t->steps + 1);
    cmn_status_layer(0);
    cmn_random_own();
    return t->pass == 0 ? cmn_trainer_remember(t) : 0;
}

int cmn_trainer_after_micro_batch(struct cmn_trainer *t)
{
    const network *net = t->net;

    t->mark = 0;
    cmn_status_compute("the update");
    cmn_random_common();
    t->loss += *net->cost;
    for (int i = 0; i < net->batch && cmn_trainer_classifies(t); i++) {
        t->right += max_index(net->output + (size_t)i * (size_t)net->outputs, net->outputs) ==
                    max_index(net->truth + (size_t)i * (size_t)net->truths, net->truths);
    }
    /* Not from `seen`, as Darknet does: after a resume with another batch it need not divide. */
    if (++t->pass < net->subdivisions) {
        t->sums.compute += cmn_clock() - t->pass_began;
        return 0;
    }
    t->pass = 0;
    return 1;
}

static void fill_metrics(struct cmn_trainer *t)
{
    float *metrics = t->optimizer.metrics;

    memset(metrics, 0, sizeof t->optimizer.metrics);
    metrics[CMN_LOSS] = t->loss;
    metrics[CMN_RIGHT] = t->right;
    metrics[CMN_IMAGES] = (float)(t->local * t->net->subdivisions);
    metrics[CMN_INTERRUPTS] = cmn_stop_requested() == SIGINT;
    metrics[CMN_TERMINATIONS] = cmn_stop_requested() == SIGTERM;
    t->loss = t->right = 0;
}

static void read_metrics(struct cmn_trainer *t)
{
    const float *metrics = t->optimizer.metrics;

    t->mean_loss = metrics[CMN_LOSS] / metrics[CMN_IMAGES];
    t->sums.loss += metrics[CMN_LOSS];
    t->sums.right += metrics[CMN_RIGHT];
    t->sums.images += metrics[CMN_IMAGES];
    t->interrupts += metrics[CMN_INTERRUPTS];
    t->terminations += metrics[CMN_TERMINATIONS];
}

/* A layer's span begins where the one before has ended: Darknet says only when a layer is done. */
static void note_layer(struct cmn_trainer *t, enum cmn_span_kind what, int i)
{
    if (cmn_timeline_on && t->mark > 0) {
        cmn_timeline_span(what, i, t->mark, cmn_clock());
    }
}

/* What comes now is the next layer's. */
static void note_poll(struct cmn_trainer *t)
{
    if (cmn_timeline_on && t->mark > 0) {
        t->mark = cmn_clock();
    }
}

int cmn_trainer_after_forward(struct cmn_trainer *t, int i)
{
    int result;

    cmn_status_layer(i + 1 < t->net->n ? i + 1 : i);
    note_layer(t, CMN_SPAN_FORWARD, i);
    result = cmn_trainer_progress(t);
    note_poll(t);
    return result;
}

int cmn_trainer_after_backward(struct cmn_trainer *t, int i)
{
    int result;

    cmn_status_compute("backward");
    cmn_status_layer(i > 0 ? i - 1 : 0);
    note_layer(t, CMN_SPAN_BACKWARD, i);
    if (cmn_trainer_check_gradient(t, i)) {
        return -1; /* before what it found is exchanged */
    }
    if (t->pass + 1 == t->net->subdivisions) {
        cmn_optimizer_after_backward(&t->optimizer, i);
        result = 0;
    } else {
        result = cmn_trainer_progress(t);
    }
    note_poll(t);
    return result;
}

int cmn_trainer_progress(struct cmn_trainer *t)
{
    cmn_status_progress();
    cmn_optimizer_poll(&t->optimizer);
    return 0;
}

static void tune(struct cmn_trainer *t)
{
    const char *chosen = cmn_optimizer_step_took(&t->optimizer, cmn_clock() - t->step_began);

    if (chosen) {
        cmn_report_clear(t->report);
        cmn_say("%s", chosen);
    }
}

int cmn_trainer_update(struct cmn_trainer *t, struct cmn_rule *rule)
{
    double begin = cmn_clock(), took;
    int fresh, skip;

    t->sums.compute += begin - t->pass_began;
    skip = cmn_trainer_gpu_checked(t) ? -1 : cmn_trainer_agree_to_skip(t);
    if (skip < 0) {
        return -1;
    }
    fill_metrics(t);
    cmn_status_bytes(t->gradients.exchange.block.n * sizeof(float));
    t->lr = rule->rate;
    if (skip) {
        --*t->net->t; /* of Adam: the updates that there were */
    } else {
        t->mean_loss = t->optimizer.metrics[CMN_LOSS] / t->optimizer.metrics[CMN_IMAGES];
    }
    fresh = cmn_optimizer_update(&t->optimizer, rule, t->total * t->net->subdivisions, skip);
    if (fresh) {
        read_metrics(t);
    }
    t->stepped = 1;
    t->pass_began = cmn_clock();
    took = t->pass_began - begin - t->optimizer.updating;
    t->sums.exchange += took;
    t->sums.compute += t->optimizer.updating;
    t->fused = rule->done;
    if (!t->optimizer.policy->own_weights) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, begin, t->pass_began);
    }
    tune(t);
    return 0;
}

int cmn_trainer_average(struct cmn_trainer *t, int settle)
{
    double begin = cmn_clock();
    int fresh = cmn_optimizer_after_update(&t->optimizer, settle);

    if (fresh) {
        read_metrics(t);
        t->pass_began = cmn_clock();
        t->sums.exchange += t->pass_began - begin;
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, begin, t->pass_began);
    }
    return 0;
}

int cmn_trainer_synchronise(struct cmn_trainer *t)
{
    return cmn_optimizer_synchronised(&t->optimizer) ? 0 : cmn_trainer_average(t, 1);
}
