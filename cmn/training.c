#include "training.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "files.h"
#include "log.h"
#include "norm.h"
#include "random.h"
#include "report/report.h"
#include "report/trace.h"
#include "scatter.h"
#include "stop.h"
#include "timeline.h"
#include "watch.h"

int cmn_training_classifies(const struct cmn_training *t)
{
    return t->net->truths == t->net->outputs && !t->net->hierarchy;
}

static int meet(const struct cmn_training *t)
{
    return cmn_mpi_check(MPI_Barrier(t->session->topology.world), "MPI_Barrier");
}

int cmn_training_attach(struct cmn_training *t, const char *cfg)
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
    cmn_training_rate(t);
    cmn_schedule_plan(&t->schedule, &s->topology, &s->options, s->communicator, s->exchange,
                      t->net->adam);
    if (cmn_gradients_open(&t->gradients, t->net, &t->schedule.communicator, s->exchange)) {
        return -1;
    }
    t->attached = 1;
    t->gradients.share = t->local;
    if (cmn_schedule_open(&t->schedule, &t->gradients, t->net->n)) {
        return -1;
    }
    if (meet(t)) { /* weights that ranks have in common are filled by one of them, and then sent */
        return -1;
    }
    t->cfg_text = cmn_files_cfg_text(cfg);
    if (!t->cfg_text || cmn_gradients_compare(&t->gradients, t->net, t->cfg_text, &s->topology)) {
        return -1;
    }
    return cmn_gradients_broadcast(&t->gradients, t->net, &s->topology) || meet(t) ||
                   cmn_schedule_begin(&t->schedule) || cmn_training_norm_open(t)
               ? -1
               : 0;
}

void cmn_training_detach(struct cmn_training *t)
{
    cmn_training_checkpoint_close(t);
    if (t->attached) {
        cmn_schedule_close(&t->schedule);
        cmn_gradients_close(&t->gradients);
    }
    cmn_norm_close(t->norm);
    cmn_scatter_close(t->scatter);
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
static void introduce(const struct cmn_training *t)
{
    const struct cmn_session *s = t->session;
    char dtype[16], how[256];

    snprintf(dtype, sizeof dtype, "%s", cmn_options_word(&s->options, "cmn_allreduce_dtype"));
    cmn_schedule_describe(&t->schedule, how, sizeof how);
    cmn_say(
        "%d rank%s on %d node%s%s, communicator %s (%s), %s%s, batch %d per rank%s, global batch "
        "%zu, scatter %s, seed %lu",
        s->topology.size, s->topology.size == 1 ? "" : "s", s->topology.inter_size,
        s->topology.inter_size == 1 ? "" : "s", s->topology.device < 0 ? "" : ", on GPUs",
        s->communicator->name, s->communicator_why, dtype, how, t->local * t->net->subdivisions,
        t->total == t->local * s->topology.size ? "" : " (rank 0; shares differ by one)",
        cmn_training_step_images(t), cmn_options_word(&s->options, "cmn_scatter"), s->seed);
    if (!s->communicator->sums && s->topology.size > 1) {
        cmn_say("communicator %s exchanges nothing: the result of this training is worthless",
                s->communicator->name);
    }
    if (s->options.validate && !s->valid_list[0] && s->command->answer != CMN_NO_ANSWER) {
        cmn_say("no `valid` list in the .data file: training without validation");
    }
}

static int start(struct cmn_training *t)
{
    struct cmn_session *s = t->session;

    if (s->options.epochs && !s->train_images) {
        return cmn_fail("cmn_epochs=%ld: the length of the training list is not known",
                        s->options.epochs);
    }
    if (cmn_training_validates(t) && cmn_evaluator_refuses(t->net)) {
        return -1;
    }
    t->started = 1;
    t->first_step = (long)get_current_batch(t->net);
    t->epoch = s->train_images ? (long)(*t->net->seen / s->train_images) : 0;
    cmn_stop_catch();
    t->began = t->sums.since = t->left = cmn_clock();
    if (cmn_training_went_on(t)) {
        return -1;
    }
    introduce(t);
    cmn_training_tell_rate(t);
    if (s->topology.rank == 0 && cmn_training_report(t)) {
        return -1;
    }
    return cmn_training_timeline(t) || cmn_training_owed(t) ? -1 : 0;
}

int cmn_training_pass(struct cmn_training *t)
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
    cmn_watch_work("forward");
    cmn_watch_iteration(t->first_step + t->steps + 1);
    cmn_watch_layer(0);
    cmn_random_own();
    return t->pass == 0 ? cmn_training_remember(t) : 0;
}

int cmn_training_passed(struct cmn_training *t)
{
    const network *net = t->net;

    t->mark = 0;
    cmn_watch_work("the update");
    cmn_random_common();
    t->loss += *net->cost;
    for (int i = 0; i < net->batch && cmn_training_classifies(t); i++) {
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

static void fill_tally(struct cmn_training *t)
{
    float *tally = t->schedule.tally;

    memset(tally, 0, sizeof t->schedule.tally);
    tally[CMN_LOSS] = t->loss;
    tally[CMN_RIGHT] = t->right;
    tally[CMN_IMAGES] = (float)(t->local * t->net->subdivisions);
    tally[CMN_INTERRUPTS] = cmn_stop_requested() == SIGINT;
    tally[CMN_TERMINATIONS] = cmn_stop_requested() == SIGTERM;
    t->loss = t->right = 0;
}

static void read_tally(struct cmn_training *t)
{
    const float *tally = t->schedule.tally;

    t->mean_loss = tally[CMN_LOSS] / tally[CMN_IMAGES];
    t->sums.loss += tally[CMN_LOSS];
    t->sums.right += tally[CMN_RIGHT];
    t->sums.images += tally[CMN_IMAGES];
    t->interrupts += tally[CMN_INTERRUPTS];
    t->terminations += tally[CMN_TERMINATIONS];
}

/* A layer's span begins where the one before has ended: Darknet says only when a layer is done. */
static void note_layer(struct cmn_training *t, enum cmn_span_kind what, int i)
{
    if (cmn_timeline_on && t->mark > 0) {
        cmn_timeline_span(what, i, t->mark, cmn_clock());
    }
}

/* What comes now is the next layer's. */
static void note_poll(struct cmn_training *t)
{
    if (cmn_timeline_on && t->mark > 0) {
        t->mark = cmn_clock();
    }
}

int cmn_training_forwarded(struct cmn_training *t, int i)
{
    int result;

    cmn_watch_layer(i + 1 < t->net->n ? i + 1 : i);
    note_layer(t, CMN_SPAN_FORWARD, i);
    result = cmn_training_poll(t);
    note_poll(t);
    return result;
}

int cmn_training_backwarded(struct cmn_training *t, int i)
{
    int result;

    cmn_watch_work("backward");
    cmn_watch_layer(i > 0 ? i - 1 : 0);
    note_layer(t, CMN_SPAN_BACKWARD, i);
    if (cmn_training_look(t, i)) {
        return -1; /* before what it found is exchanged */
    }
    result = t->pass + 1 == t->net->subdivisions ? cmn_schedule_backwarded(&t->schedule, i)
                                                 : cmn_training_poll(t);
    note_poll(t);
    return result;
}

int cmn_training_poll(struct cmn_training *t)
{
    cmn_watch_moved();
    return cmn_schedule_poll(&t->schedule);
}

static int tune(struct cmn_training *t)
{
    int chosen =
        cmn_tuner_took(&t->schedule.tuner, cmn_clock() - t->step_began, &t->session->topology);

    if (chosen > 0) {
        cmn_report_clear(t->report);
        cmn_say("%s", t->schedule.tuner.why);
    }
    return chosen < 0 ? -1 : 0;
}

int cmn_training_update(struct cmn_training *t, struct cmn_rule *rule)
{
    double begin = cmn_clock(), took;
    int fresh, skip;

    t->sums.compute += begin - t->pass_began;
    skip = cmn_training_looked(t) ? -1 : cmn_training_agree_to_skip(t);
    if (skip < 0) {
        return -1;
    }
    fill_tally(t);
    cmn_watch_bytes(t->gradients.exchange.block.n * sizeof(float));
    t->lr = rule->rate;
    if (skip) {
        --*t->net->t; /* of Adam: the updates that there were */
        fresh = cmn_schedule_skip(&t->schedule, rule, t->total * t->net->subdivisions);
    } else {
        t->mean_loss = t->schedule.tally[CMN_LOSS] / t->schedule.tally[CMN_IMAGES];
        fresh = cmn_schedule_update(&t->schedule, rule, t->total * t->net->subdivisions);
    }
    if (fresh < 0) {
        return -1;
    }
    if (fresh) {
        read_tally(t);
    }
    t->stepped = 1;
    t->pass_began = cmn_clock();
    took = t->pass_began - begin - t->schedule.updating;
    t->sums.exchange += took;
    t->sums.compute += t->schedule.updating;
    t->fused = rule->done;
    if (t->schedule.local == 1) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, begin, t->pass_began);
    }
    return tune(t);
}

int cmn_training_average(struct cmn_training *t, int settle)
{
    double begin = cmn_clock();
    int fresh = cmn_schedule_updated(&t->schedule, settle);

    if (fresh < 0) {
        return -1;
    }
    if (fresh) {
        read_tally(t);
        t->pass_began = cmn_clock();
        t->sums.exchange += t->pass_began - begin;
        cmn_timeline_span(CMN_SPAN_EXCHANGE, -1, begin, t->pass_began);
    }
    return 0;
}

int cmn_training_settle(struct cmn_training *t)
{
    return cmn_schedule_settled(&t->schedule) ? 0 : cmn_training_average(t, 1);
}
