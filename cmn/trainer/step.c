#include "trainer/step.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "base/stop_request.h"
#include "base/timeline.h"
#include "engine/batch_norm.h"
#include "engine/recurrent_state.h"
#include "engine/replicas.h"
#include "mpi/call.h"
#include "report/report.h"

long cmn_step_iteration(const struct cmn_step *p)
{
    return p->first + p->done;
}

/* ---- micro-batches ---- */

/* The images of a step count as seen one micro-batch after the other, as in one process; where other
 * ranks have some of them, this rank has its own place in their order. */
static int more_seen(const struct cmn_step *p)
{
    int before = p->micro_batch ? cmn_feed_seen(p->feed, p->micro_batch - 1) : 0;

    return cmn_feed_seen(p->feed, p->micro_batch) - before;
}

/* What the rolling statistics of this rank's micro-batch get, with cmn_exact. */
static float *added_by(const struct cmn_step *p)
{
    return p->added +
           (size_t)p->micro_batch * cmn_gradients_floats(&p->model->gradients, CMN_STATISTIC);
}

/* cmn_exact: the rolling statistics begin each micro-batch with zeros, and so keep what it adds. */
static void begin_statistics(struct cmn_step *p)
{
    const struct cmn_gradients *g = &p->model->gradients;
    float *added;

    if (!p->rolling) {
        return;
    }
    if (p->micro_batch == 0) {
        cmn_gradients_pack(g, CMN_STATISTIC, p->rolling);
    }
    added = added_by(p);
    memset(added, 0, cmn_gradients_floats(g, CMN_STATISTIC) * sizeof *added);
    cmn_gradients_unpack(g, CMN_STATISTIC, added);
}

int cmn_step_before_micro_batch(struct cmn_step *p)
{
    p->micro_batch_began = cmn_clock();
    if (p->micro_batch == 0) {
        p->began = p->micro_batch_began;
        p->seen = cmn_net_seen(p->model->net);
        p->sums.load += p->micro_batch_began - p->ended;
        cmn_timeline_span(CMN_SPAN_LOAD, -1, p->ended, p->micro_batch_began);
        if (cmn_feed_begin_step(p->feed)) {
            cmn_optimizer_divide(&p->model->optimizer, p->feed->first);
        }
        p->window.load += p->done ? p->micro_batch_began - p->ended : 0;
        p->model->gradients.exchange.images = (float)cmn_feed_step_images(p->feed);
        cmn_nonfinite_begin_step(&p->nonfinite, cmn_step_iteration(p) + 1);
        cmn_gradients_scale_statistics(&p->model->gradients, &p->feed->share.before);
    }
    if (cmn_feed_exact(p->feed) && !p->sequences.groups) {
        cmn_recurrent_state_zero(p->model->net);
    }
    begin_statistics(p);
    cmn_nonfinite_begin_micro_batch(&p->nonfinite);
    p->layer_ended = p->micro_batch_began;
    cmn_status_compute("forward");
    cmn_status_iteration(cmn_step_iteration(p) + 1);
    cmn_status_layer(0);
    if (cmn_feed_exact(p->feed)) {
        cmn_feed_seed_micro_batch(p->seen, p->feed->share.first + p->micro_batch);
    } else {
        cmn_random_own();
    }
    return more_seen(p);
}

static void add_in_order(struct cmn_step *p, float loss, float right)
{
    const struct cmn_share *share = &p->feed->share;
    const float metrics[CMN_METRICS] = {
        [CMN_LOSS] = loss, [CMN_RIGHT] = right, [CMN_IMAGES] = (float)share->local};

    if (p->rolling) {
        cmn_gradients_pack(&p->model->gradients, CMN_STATISTIC, added_by(p));
    }
    if (cmn_feed_exact(p->feed) && !share->spare) {
        cmn_optimizer_after_micro_batch(&p->model->optimizer, metrics);
    }
}

int cmn_step_after_micro_batch(struct cmn_step *p)
{
    struct cmn_net *net = p->model->net;
    float loss, right;

    /* Before the loss is waited for: who waits for that does not see that another rank never comes. */
    if (p->norm) {
        cmn_batch_norm_await(p->norm);
    }
    loss = cmn_net_loss(net);
    right = (float)cmn_net_count_right(net);
    if (p->model->gradients.on_gpu) {
        cmn_nonfinite_look_at_loss(&p->nonfinite, p->micro_batch);
    }
    p->layer_ended = 0;
    cmn_status_compute("the update");
    cmn_random_common();
    p->loss += loss;
    p->right += right;
    p->window.compute += p->done ? cmn_clock() - p->micro_batch_began : 0;
    p->window_batches += p->done > 0;
    add_in_order(p, loss, right);
    /* Not from `seen`, as Darknet does: it need not divide after a resume with another batch. */
    if (++p->micro_batch < p->feed->share.micro_batches) {
        p->sums.compute += cmn_clock() - p->micro_batch_began;
        return 0;
    }
    cmn_net_set_seen(net, cmn_net_seen(net) + cmn_feed_step_images(p->feed) -
                              (size_t)cmn_feed_seen(p->feed, p->micro_batch - 1));
    cmn_gradients_scale_statistics(&p->model->gradients, &p->feed->share.after);
    p->micro_batch = 0;
    return 1;
}

/* A layer's span begins where the one before has ended: Darknet says only when a layer is done. */
static void note_layer(const struct cmn_step *p, enum cmn_span_kind what, int i)
{
    if (cmn_timeline_on && p->layer_ended > 0) {
        cmn_timeline_span(what, i, p->layer_ended, cmn_clock());
    }
}

/* The time from here on belongs to the next layer. */
static void note_poll(struct cmn_step *p)
{
    if (cmn_timeline_on && p->layer_ended > 0) {
        p->layer_ended = cmn_clock();
    }
}

void cmn_step_after_forward(struct cmn_step *p, int i)
{
    cmn_status_layer(i + 1 < cmn_net_layers(p->model->net) ? i + 1 : i);
    note_layer(p, CMN_SPAN_FORWARD, i);
    cmn_step_progress(p);
    note_poll(p);
}

void cmn_step_after_backward(struct cmn_step *p, int i)
{
    cmn_status_compute("backward");
    cmn_status_layer(i > 0 ? i - 1 : 0);
    note_layer(p, CMN_SPAN_BACKWARD, i);
    cmn_nonfinite_after_backward(&p->nonfinite, i, p->micro_batch); /* before it is exchanged */
    if (p->micro_batch + 1 == p->feed->share.micro_batches) {
        cmn_optimizer_after_backward(&p->model->optimizer, i);
    } else {
        cmn_step_progress(p);
    }
    note_poll(p);
}

void cmn_step_progress(struct cmn_step *p)
{
    cmn_status_progress();
    cmn_optimizer_poll(&p->model->optimizer);
}

/* ---- cmn_sync_bn ---- */

static size_t most_filters(const struct cmn_gradients *g)
{
    size_t most = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        most = t->kind == CMN_STATISTIC && t->n > most ? t->n : most;
    }
    return most;
}

void cmn_step_open(struct cmn_step *p)
{
    const struct cmn_session *s = p->session;
    size_t filters = most_filters(&p->model->gradients);
    size_t statistics = cmn_gradients_floats(&p->model->gradients, CMN_STATISTIC);

    if (cmn_feed_exact(p->feed) && !strcmp(s->command->driver, "rnn")) {
        cmn_sequences_open(&p->sequences, p->model->net, p->feed->share.micro_batches);
    }
    if (cmn_feed_exact(p->feed) && statistics) {
        p->rolling = cmn_alloc_floats(statistics);
        p->added = cmn_alloc_floats(statistics * (size_t)(p->feed->balance.on
                                                              ? cmn_feed_exact(p->feed)
                                                              : p->feed->share.micro_batches));
    }

    if (!s->options.sync_bn) {
        return;
    }
    if (!filters) {
        cmn_say("cmn_sync_bn=on changes nothing: the network has no batch normalisation");
        return;
    }
    if (s->topology.size > 1 && s->communicator->sums) {
        p->norm = cmn_batch_norm_open(&s->topology, &s->options, filters);
        cmn_batch_norm_divide(p->norm, cmn_gradients_variance_less());
    }
}

int cmn_step_syncs_batch_norm(const struct cmn_step *p)
{
    return p->session->options.sync_bn && p->layer_ended > 0;
}

static void poll(void *self)
{
    cmn_step_progress(self);
}

/* Returns whether there is something to exchange. */
static int begin_sync(struct cmn_step *p)
{
    if (!p->norm || !cmn_step_syncs_batch_norm(p)) {
        return 0;
    }
    cmn_batch_norm_idle(p->norm, p->model->optimizer.begun ? poll : NULL, p);
    return 1;
}

/* An exchange does not count as computation: the micro-batch's begin moves by as much. In the first
 * step nothing else comes to a GPU meanwhile: what CUDA brings there for the first time may wait for
 * what runs. */
static void end_sync(struct cmn_step *p, double began)
{
    double took;

    if (p->done == 0) {
        cmn_batch_norm_await(p->norm);
    }
    took = cmn_clock() - began;
    p->sums.exchange += took;
    p->micro_batch_began += took;
}

void cmn_step_sync_forward(struct cmn_step *p, float *mean, float *variance, int n, int count)
{
    double began = cmn_clock();

    if (begin_sync(p)) {
        cmn_batch_norm_forward(p->norm, mean, variance, (size_t)n, count);
        end_sync(p, began);
    }
}

void cmn_step_sync_backward(struct cmn_step *p, float *mean_delta, float *variance_delta, int n,
                            int count)
{
    double began = cmn_clock();

    if (begin_sync(p)) {
        cmn_batch_norm_backward(p->norm, mean_delta, variance_delta, (size_t)n, count);
        end_sync(p, began);
    }
}

void cmn_step_close(struct cmn_step *p)
{
    if (p->norm) {
        cmn_batch_norm_close(p->norm);
    }
    cmn_nonfinite_close(&p->nonfinite);
    cmn_sequences_close(&p->sequences);
    p->norm = NULL;
    free(p->rolling);
    free(p->added);
    p->rolling = p->added = NULL;
}

/* ---- the update ---- */

/* What travels with the gradients. */
static void fill_metrics(struct cmn_step *p)
{
    float *metrics = p->model->optimizer.metrics;

    memset(metrics, 0, sizeof p->model->optimizer.metrics);
    metrics[CMN_LOSS] = p->loss;
    metrics[CMN_RIGHT] = p->right;
    metrics[CMN_IMAGES] = (float)cmn_feed_own_images(p->feed);
    metrics[CMN_INTERRUPTS] = cmn_stop_requested() == SIGINT;
    metrics[CMN_TERMINATIONS] = cmn_stop_requested() == SIGTERM;
    p->loss = p->right = 0;
}

/* Because its sum is too large for 16 bits. */
static int is_left_out(const struct cmn_step *p)
{
    return p->model->optimizer.too_large >= 0;
}

static void read_metrics(struct cmn_step *p)
{
    const float *metrics = p->model->optimizer.metrics;

    p->session->interrupts += metrics[CMN_INTERRUPTS];
    p->session->terminations += metrics[CMN_TERMINATIONS];
    if (is_left_out(p)) {
        return; /* as a step that cmn_nonfinite=skip leaves out */
    }
    p->mean_loss = metrics[CMN_LOSS] / metrics[CMN_IMAGES];
    p->sums.loss += metrics[CMN_LOSS];
    p->sums.right += metrics[CMN_RIGHT];
    p->sums.images += metrics[CMN_IMAGES];
}

/* Nothing is learned from the step. With double buffering it was the one before, and the statistics
 * of this one contain it already. */
static void leave_out(struct cmn_step *p, float mean_loss)
{
    const struct cmn_optimizer *o = &p->model->optimizer;

    p->mean_loss = mean_loss;
    if (!o->policy->sends_copy) {
        cmn_nonfinite_undo_statistics(&p->nonfinite);
    }
}

static void tune_buckets(struct cmn_step *p)
{
    const char *chosen = cmn_optimizer_step_took(&p->model->optimizer, cmn_clock() - p->began);

    if (chosen) {
        cmn_report_clear(p->session->report);
        cmn_say("%s", chosen);
    }
}

/* The exchange has ended. The update that was part of it counts as computation. */
static void note_exchange(struct cmn_step *p, double began)
{
    const struct cmn_optimizer *o = &p->model->optimizer;

    p->micro_batch_began = cmn_clock();
    p->sums.exchange += p->micro_batch_began - began - o->updating;
    p->sums.compute += o->updating;
    if (!o->policy->own_weights) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, began, p->micro_batch_began);
    }
}

/* ---- cmn_balance ---- */

enum { BALANCE_EVERY = 8 }; /* steps between measurements; a deal waits for two of them */

static void tell_deal(const struct cmn_step *p, double part)
{
    struct cmn_balance *b = &p->feed->balance;
    int *first = cmn_calloc((size_t)b->ranks + 1, sizeof *first);
    int rank = 0, many = 0;
    char text[64] = "";

    cmn_balance_first(b, b->from, first);
    for (; rank < b->ranks && !many; rank++) {
        size_t n = strlen(text);
        many = n > sizeof text - 16;
        snprintf(text + n, sizeof text - n, many ? " …" : " %d", first[rank + 1] - first[rank]);
    }
    cmn_report_clear(p->session->report);
    cmn_say(
        "cmn_balance=auto: from iteration %ld on the ranks compute%s of %d micro-batches: %.0f%% "
        "of the time of equal parts",
        cmn_step_iteration(p) + 3, text, b->micro_batches, 100 * part);
    free(first);
}

/* Collective, blocking, every few steps. */
static void balance(struct cmn_step *p)
{
    struct cmn_balance *b = &p->feed->balance;
    double mine, *all, part = 1;

    if (p->feed->step % BALANCE_EVERY) {
        return;
    }
    all = cmn_calloc((size_t)b->ranks, sizeof *all);
    mine = (p->window.compute + p->window.load) / (double)(p->window_batches + !p->window_batches);
    MPI_CALL(MPI_Allgather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, p->session->topology.world));
    if (cmn_balance_measured(b, p->feed->step - 1, all, &part)) {
        tell_deal(p, part);
    }
    p->window = (struct cmn_row_sums){0};
    p->window_batches = 0;
    free(all);
}

void cmn_step_update(struct cmn_step *p, struct cmn_rule *rule)
{
    struct cmn_model *m = p->model;
    struct cmn_optimizer *o = &m->optimizer;
    double began;
    float mean_loss = p->mean_loss;
    int skip, fresh;

    if (m->gradients.on_gpu) {
        if (p->norm) {
            cmn_batch_norm_await(p->norm);
        }
        cmn_status_compute("backward on the GPU"); /* no other rank is waited for */
        cmn_optimizer_finish_backward(o);
    }
    began = cmn_clock();
    cmn_status_wait("the sum of the gradients");
    p->sums.compute += began - p->micro_batch_began;
    skip = cmn_nonfinite_skips(&p->nonfinite);
    fill_metrics(p);
    cmn_status_bytes(m->gradients.exchange.block.n * sizeof(float));
    p->lr = rule->rate;
    if (!skip) {
        p->mean_loss = o->metrics[CMN_LOSS] / o->metrics[CMN_IMAGES];
    }
    if (p->rolling && !skip) {
        cmn_replicas_roll_statistics(&m->gradients, &p->session->topology, p->rolling, p->added,
                                     p->feed->first);
    }
    fresh = cmn_optimizer_update(o, rule, (int)cmn_feed_step_images(p->feed), skip);
    if (fresh) {
        read_metrics(p);
    }
    if ((!fresh && !o->policy->own_weights) || is_left_out(p)) {
        cmn_net_set_updates(m->net, cmn_net_updates(m->net) - 1); /* Adam has not updated */
    }
    if (is_left_out(p)) {
        char text[CMN_TOO_LARGE];
        cmn_say_too_large(o, o->too_large, text);
        cmn_nonfinite_leave_out(&p->nonfinite, cmn_step_iteration(p) + 1 - o->policy->sends_copy,
                                text);
    }
    if (is_left_out(p) && !skip) {
        leave_out(p, mean_loss);
    }
    p->updated = 1;
    p->fused = rule->done;
    note_exchange(p, began);
    if (p->feed->balance.on) {
        balance(p);
    }
    tune_buckets(p);
    cmn_status_wait(NULL);
}

/* Where each rank keeps its part of what it adds to. */
void cmn_step_leaves_out(struct cmn_step *p, int layer)
{
    const struct cmn_update_policy *policy = p->model->optimizer.policy;

    if (policy->own_velocity || policy->own_weights) {
        return;
    }
    cmn_gradients_scale_layer(&p->model->gradients, layer, 1.0F / (float)p->session->topology.size);
}

void cmn_step_after_update(struct cmn_step *p, int synchronise)
{
    double began = cmn_clock();

    if (cmn_optimizer_after_update(&p->model->optimizer, synchronise)) {
        read_metrics(p);
        p->micro_batch_began = cmn_clock();
        p->sums.exchange += p->micro_batch_began - began;
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, began, p->micro_batch_began);
    }
}

void cmn_step_synchronise(struct cmn_step *p)
{
    if (!cmn_optimizer_synchronised(&p->model->optimizer)) {
        cmn_step_after_update(p, 1);
    }
}
