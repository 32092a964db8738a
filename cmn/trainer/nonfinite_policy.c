#include "trainer/nonfinite_policy.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stop_request.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "report/report.h"
#include "report/row.h"

enum { SAID = 10, THEN_EVERY = 100, IN_A_ROW = 100, SHOWN = 3, TEXT = 768 };

static enum cmn_nonfinite_mode mode(const struct cmn_nonfinite_policy *p)
{
    return (enum cmn_nonfinite_mode)p->session->options.nonfinite;
}

static void *open_nonfinite(struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = step->nonfinite = cmn_calloc(1, sizeof *p);

    p->session = step->session;
    p->model = step->model;
    p->feed = step->feed;
    return p;
}

static void close_nonfinite(void *self)
{
    struct cmn_nonfinite_policy *p = self;

    free(p->statistics);
    free(p->asked_sample);
    free(p);
}

/* ---- the message: its origin and images ---- */

static int write_list(const struct cmn_feed *f, const struct cmn_sample *sample, size_t n,
                      const char *file)
{
    char unfinished[3 * CMN_TEXT], name[4096];
    int fd = cmn_atomic_open(file, unfinished, sizeof unfinished), failed;
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

    if (!out) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        cmn_feed_name_sample(f, &sample[i], name, sizeof name);
        fprintf(out, "%s\tepoch %zu, place %zu\n", name, sample[i].pass + 1, sample[i].place + 1);
    }
    failed = fflush(out) || ferror(out) ? (unlink(unfinished), -1)
                                        : cmn_atomic_commit_as(fd, unfinished, file, 0600);
    fclose(out);
    return failed;
}

/* Returns the samples among which the value was found, and sets *sample; the caller frees it. */
static size_t samples_of(const struct cmn_nonfinite_policy *p, struct cmn_sample **sample)
{
    if (p->asked != p->iteration) {
        return cmn_feed_samples(p->feed, p->found_micro_batch, sample);
    }
    *sample = cmn_malloc(p->asked_samples + 1, sizeof **sample);
    memcpy(*sample, p->asked_sample, p->asked_samples * sizeof **sample);
    return p->asked_samples;
}

/* Appends the first images, and the name of the file that lists all of them, to the message. */
static void add_images(const struct cmn_nonfinite_policy *p, char *text, size_t bytes)
{
    const struct cmn_session *s = p->session;
    char file[2 * CMN_TEXT + 64], name[128];
    struct cmn_sample *sample;
    size_t n = samples_of(p, &sample), used = strlen(text);

    if (!n) {
        free(sample);
        return;
    }
    if (p->found_image >= 0 && p->found_micro_batch >= 0) {
        cmn_feed_name_sample(p->feed, &sample[p->found_image], name, sizeof name);
        used += (size_t)snprintf(text + used, bytes - used, ", %s", name);
    }
    snprintf(file, sizeof file, "%s/%s-%ld.rank-%d.nonfinite.txt", s->backup, p->model->name,
             p->iteration, s->topology.rank);
    if (write_list(p->feed, sample, n, file)) {
        used += (size_t)snprintf(text + used, bytes - used,
                                 "; its %zu images (%.200s could not be written: %s):", n, file,
                                 strerror(errno));
    } else {
        used +=
            (size_t)snprintf(text + used, bytes - used, "; its %zu images are in %.300s:", n, file);
    }
    for (size_t i = 0; i < n && i < SHOWN && used < bytes; i++) {
        cmn_feed_name_sample(p->feed, &sample[i], name, sizeof name);
        used += (size_t)snprintf(text + used, bytes - used, "%s %s", i ? "," : "", name);
    }
    if (n > SHOWN && used < bytes) {
        snprintf(text + used, bytes - used, ", …");
    }
    free(sample);
}

static void describe(const struct cmn_nonfinite_policy *p, char text[TEXT])
{
    char what[160];

    cmn_nonfinite_say(p->model->net, &p->found, what, sizeof what);
    snprintf(text, TEXT, "%s%s", what, p->origin);
    add_images(p, text, TEXT);
}

static void stop(const struct cmn_nonfinite_policy *p)
{
    const struct cmn_model *m = p->model;
    char text[TEXT];

    describe(p, text);
    cmn_fatal("iteration %ld: %s%s", p->iteration, text,
              m->optimizer.policy->own_weights
                  ? ""
                  : " (cmn_nonfinite=skip would leave such a step out)");
}

/* ---- checking ---- */

/* Notes the first NaN or Inf of a step, its origin and its image. */
static void note(struct cmn_nonfinite_policy *p, const struct cmn_nonfinite *found, int micro_batch,
                 int current)
{
    const struct cmn_model *m = p->model;
    long image = -1;

    if (p->found.name) {
        return;
    }
    p->found = *found;
    p->found_micro_batch = micro_batch;
    cmn_nonfinite_origin(&m->gradients, m->net, p->origin, sizeof p->origin, &image);
    p->found_image = image < p->feed->share.local ? (int)image : -1;
    if (p->found_image >= 0) {
        p->found_micro_batch = current; /* the image is one of that micro-batch */
    }
}

static void before_micro_batch(void *self, struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = self;

    (void)step;
    p->looked = 0;
    if (cmn_feed_exact(p->feed)) {
        p->next = 0;
    }
}

static void look_at_gradients(struct cmn_nonfinite_policy *p, int layer, int micro_batch)
{
    struct cmn_gradients *g = &p->model->gradients;
    struct cmn_nonfinite found;

    if (g->on_gpu) {
        g->ops->check(g, cmn_buckets_end(&p->model->optimizer.buckets, layer));
        return;
    }
    for (; p->next < g->tensors && g->tensor[p->next].layer >= layer; p->next++) {
        const struct cmn_tensor *tensor = &g->tensor[p->next];
        if (tensor->kind == CMN_GRADIENT && cmn_nonfinite_gradient(tensor, &found)) {
            note(p, &found, cmn_feed_exact(p->feed) ? micro_batch : -1, micro_batch);
        }
    }
}

static void look_at_loss(struct cmn_nonfinite_policy *p, int micro_batch)
{
    struct cmn_nonfinite found;

    if (!p->looked) {
        p->looked = 1;
        if (cmn_nonfinite_loss(p->model->net, &found)) {
            note(p, &found, micro_batch, micro_batch);
        }
    }
}

static void stop_if_found(const struct cmn_nonfinite_policy *p)
{
    if (p->found.name && mode(p) == CMN_NONFINITE_STOP) {
        stop(p);
    }
}

/* Checks a layer's gradients before they are exchanged. With cmn_exact each micro-batch begins with
 * gradients of 0, so each is checked; otherwise the last one has the sum of all. */
static void after_layer(void *self, struct cmn_step *step, int backward, int layer)
{
    struct cmn_nonfinite_policy *p = self;

    if (!backward || mode(p) == CMN_NONFINITE_IGNORE || p->feed->share.spare) {
        return;
    }
    if (!p->model->gradients.on_gpu) {
        look_at_loss(p, step->micro_batch);
    }
    if (cmn_step_is_last(step) || cmn_feed_exact(p->feed)) {
        look_at_gradients(p, layer, step->micro_batch);
    }
    stop_if_found(p);
}

/* On a GPU the loss is not known earlier. */
static void after_micro_batch(void *self, struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = self;

    if (p->model->gradients.on_gpu && mode(p) != CMN_NONFINITE_IGNORE && !p->feed->share.spare) {
        look_at_loss(p, step->micro_batch);
        stop_if_found(p);
    }
}

void cmn_nonfinite_complete(struct cmn_nonfinite_policy *p)
{
    const struct cmn_tensor *tensor;
    struct cmn_gradients *g;
    int found;

    if (!p || !p->asked) {
        return;
    }
    g = &p->model->gradients;
    found = g->ops->answer(g);
    if (found < 0) {
        p->asked = 0;
        return;
    }
    tensor = &g->tensor[found];
    p->iteration = p->asked;
    p->found = (struct cmn_nonfinite){tensor->layer, tensor->name, 0};
    p->found_micro_batch = p->found_image = -1;
    p->origin[0] = '\0';
    stop(p);
}

/* Asks the GPU about this step, once the answer about the previous one was read. */
static void ask(struct cmn_nonfinite_policy *p)
{
    cmn_nonfinite_complete(p);
    p->model->gradients.ops->ask(&p->model->gradients);
    p->asked = p->iteration;
    free(p->asked_sample);
    p->asked_samples = cmn_feed_samples(p->feed, -1, &p->asked_sample);
}

/* On a GPU a kernel checks each bucket before it is sent; this checks the rest. The host reads the
 * result before the update, where it waits for backward anyway. */
static void check_gpu(struct cmn_nonfinite_policy *p)
{
    struct cmn_model *m = p->model;
    const struct cmn_communicator *c = &m->optimizer.communicator;
    const struct cmn_tensor *tensor;
    const float *x;
    int found;

    if (!m->gradients.on_gpu || mode(p) == CMN_NONFINITE_IGNORE) {
        return;
    }
    m->gradients.ops->check(&m->gradients, m->gradients.exchange.block.n);
    if (m->optimizer.policy == &cmn_double_buffering && mode(p) == CMN_NONFINITE_STOP) {
        ask(p);
        return;
    }
    if (p->session->topology.size > 1 && c->poll) {
        cmn_device_wait(c->poll, m->optimizer.self);
    }
    m->gradients.ops->ask(&m->gradients);
    found = m->gradients.ops->answer(&m->gradients);
    if (found < 0) {
        return;
    }
    /* An exchange may have overwritten the value in the meantime. */
    cmn_gradients_pull(&m->gradients, CMN_GRADIENT);
    tensor = &m->gradients.tensor[found];
    x = cmn_nonfinite_find(*tensor->at, tensor->n);
    note(p, &(struct cmn_nonfinite){tensor->layer, tensor->name, x ? *x : NAN}, -1, 0);
    if (mode(p) == CMN_NONFINITE_STOP) {
        stop(p);
    }
}

/* ---- discarding a step ---- */

static void before_step(void *self, struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = self;
    const struct cmn_gradients *g = &p->model->gradients;

    p->iteration = cmn_step_iteration(step) + 1;
    p->found.name = NULL;
    p->found_micro_batch = p->found_image = -1;
    p->next = 0;
    if (mode(p) != CMN_NONFINITE_SKIP) {
        return;
    }
    /* A forward pass with NaN also changes the rolling statistics. */
    if (!p->statistics) {
        p->statistics = cmn_malloc(cmn_gradients_floats(g, CMN_STATISTIC), sizeof *p->statistics);
    }
    cmn_gradients_pack(g, CMN_STATISTIC, p->statistics);
}

/* Collective, blocking. Rank `from` has found the value: prints its description. */
static void tell(const struct cmn_nonfinite_policy *p, int from)
{
    const struct cmn_topology *top = &p->session->topology;
    char text[TEXT] = "", host[sizeof top->host];

    memcpy(host, top->host, sizeof host);
    if (top->rank == from) {
        describe(p, text);
    }
    MPI_CALL(MPI_Bcast(text, TEXT, MPI_CHAR, from, top->world));
    MPI_CALL(MPI_Bcast(host, sizeof host, MPI_CHAR, from, top->world));
    cmn_report_clear(p->session->report);
    cmn_warn("iteration %ld is left out (%ld so far): rank %d@%s: %s", p->iteration, p->skipped,
             from, host, text);
}

/* Returns whether a message is due: for the first ten steps, then for every hundredth. */
static int is_worth_saying(long so_far)
{
    return so_far <= SAID || so_far % THEN_EVERY == 0;
}

static void undo_statistics(const struct cmn_nonfinite_policy *p)
{
    cmn_gradients_unpack(&p->model->gradients, CMN_STATISTIC, p->statistics);
}

static void count(struct cmn_nonfinite_policy *p, long iteration)
{
    p->skipped++;
    p->in_a_row = p->last && iteration == p->last + 1 ? p->in_a_row + 1 : 1;
    p->last = iteration;
    if (p->in_a_row == IN_A_ROW) {
        cmn_fatal("iteration %ld: %d steps in a row were left out (cmn_nonfinite=skip): the "
                  "network gives only NaN or Inf, so nothing is saved of it; lower "
                  "learning_rate, and resume from earlier weights or a checkpoint",
                  iteration, IN_A_ROW);
    }
}

static void discard(struct cmn_nonfinite_policy *p, int from)
{
    count(p, p->iteration);
    if (is_worth_saying(p->skipped)) {
        tell(p, from);
    }
    undo_statistics(p);
}

/* Collective with cmn_nonfinite=skip, else local; blocks on GPUs and if it is collective. Makes all
 * ranks skip the step if one of them found NaN or Inf, and prints so. */
static void before_exchange(void *self, struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = self;
    const struct cmn_topology *top = &p->session->topology;
    int least[3] = {INT_MAX, cmn_stop_requested() != SIGINT, cmn_stop_requested() != SIGTERM};

    check_gpu(p);
    if (mode(p) != CMN_NONFINITE_SKIP) {
        return;
    }
    least[0] = p->found.name ? top->rank : INT_MAX;
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, least, 3, MPI_INT, MPI_MIN, top->world));
    if (least[0] == INT_MAX) {
        return;
    }
    /* In other steps the stop requests come with the metrics. */
    step->interrupts += (float)!least[1];
    step->terminations += (float)!least[2];
    discard(p, least[0]);
    step->skip = 1;
}

/* With cmn_nonfinite=skip: counts a step that was discarded because a sum of the exchange
 * overflowed 16 bits. With double buffering that was the step before, whose statistics the current
 * ones contain already, so they stay. */
static void after_exchange(void *self, struct cmn_step *step)
{
    struct cmn_nonfinite_policy *p = self;
    const struct cmn_optimizer *o = &step->model->optimizer;
    long iteration = p->iteration - o->policy->sends_copy;
    char why[CMN_TOO_LARGE];

    if (!cmn_step_is_discarded(step)) {
        return;
    }
    count(p, iteration);
    if (is_worth_saying(p->skipped)) {
        cmn_say_too_large(o, o->too_large, why);
        cmn_report_clear(p->session->report);
        cmn_warn("iteration %ld is left out (%ld so far): %s", iteration, p->skipped, why);
    }
    if (!step->skip && !o->policy->sends_copy) {
        undo_statistics(p);
    }
}

void cmn_nonfinite_check_weights(const struct cmn_nonfinite_policy *p)
{
    const struct cmn_gradients *g;
    struct cmn_nonfinite found;
    char what[160];

    if (!p || mode(p) == CMN_NONFINITE_IGNORE || p->session->command->does != CMN_TRAINS) {
        return;
    }
    g = &p->model->gradients;
    cmn_gradients_pull(g, CMN_WEIGHT);
    cmn_gradients_pull(g, CMN_STATISTIC);
    if (cmn_nonfinite_tensor(g, CMN_WEIGHT, &found) ||
        cmn_nonfinite_tensor(g, CMN_STATISTIC, &found)) {
        cmn_nonfinite_say(p->model->net, &found, what, sizeof what);
        cmn_fatal("the weights are not saved, for they are worthless: %s (cmn_nonfinite=ignore "
                  "would save them)",
                  what);
    }
}

static void save(void *self, struct cmn_step *step)
{
    (void)step;
    cmn_nonfinite_complete(self);
}

static void fill_row(void *self, struct cmn_step *step, struct cmn_row *row)
{
    const struct cmn_nonfinite_policy *p = self;

    (void)step;
    row->skipped = p->skipped;
}

const struct cmn_extension cmn_nonfinite_extension = {
    .name = "NaN and Inf",
    .open = open_nonfinite,
    .close = close_nonfinite,
    .before_step = before_step,
    .before_micro_batch = before_micro_batch,
    .after_layer = after_layer,
    .after_micro_batch = after_micro_batch,
    .before_exchange = before_exchange,
    .after_exchange = after_exchange,
    .save = save,
    .fill_row = fill_row,
};
