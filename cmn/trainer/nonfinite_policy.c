/* cmn_nonfinite: steps in which a loss or gradient is no number. It is looked for before the gradients leave the rank, so
 * the weights stay as they were. stop: that rank ends the job. skip: all ranks learn of it before they exchange anything, and leave
 * the step out. */
#include "trainer/trainer.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "darknet.h"
#include "mpi/device.h"
#include "base/memory.h"
#include "engine/recurrent_state.h"
#include "base/log.h"
#include "report/report.h"
#include "data/sampler.h"
#include "base/stop_request.h"

enum { SAID = 10, THEN_EVERY = 100, IN_A_ROW = 100, SHOWN = 3, TEXT = 768 };

static enum cmn_nonfinite_mode mode(const struct cmn_trainer *t)
{
    return (enum cmn_nonfinite_mode)t->session->options.nonfinite;
}

static long iteration(const struct cmn_trainer *t)
{
    return t->first_step + t->steps + 1;
}

/* ---- which images ---- */

/* This rank's samples that are to blame: those of one pass, or of the whole step. NULL where samples have no numbers, as in a
 * text, or memory is short. The caller frees. */
static struct cmn_sample *blamed(const struct cmn_trainer *t, size_t *n)
{
    size_t pass = (size_t)t->local, whole = pass * (size_t)t->net->subdivisions;
    struct cmn_sample *sample;

    *n = t->bad_pass < 0 ? whole : pass;
    sample = t->scatter ? calloc(*n + 1, sizeof *sample) : NULL;
    if (sample) {
        size_t first = t->current + (t->bad_pass < 0 ? 0 : (size_t)t->bad_pass * pass);
        cmn_sampler_next(t->scatter, first, *n, sample);
    }
    return sample;
}

static void name_sample(const struct cmn_trainer *t, const struct cmn_sample *sample, char *text,
                        size_t bytes)
{
    char **paths = atomic_load(&((struct cmn_trainer *)t)->paths);

    if (paths) {
        snprintf(text, bytes, "%s", paths[sample->image]);
    } else {
        snprintf(text, bytes, "sample %zu of the data", sample->image);
    }
}

static int write_list(const struct cmn_trainer *t, const struct cmn_sample *sample, size_t n,
                      const char *file)
{
    char aside[3 * CMN_TEXT], name[4096];
    int fd = cmn_atomic_open(file, aside, sizeof aside), failed;
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

    if (!out) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        name_sample(t, &sample[i], name, sizeof name);
        fprintf(out, "%s\tepoch %zu, place %zu\n", name, sample[i].pass + 1, sample[i].place + 1);
    }
    failed = fflush(out) || ferror(out) ? (unlink(aside), -1)
                                        : cmn_atomic_commit_as(fd, aside, file, 0600);
    fclose(out);
    return failed;
}

/* Behind what has been said: the images, and the file that lists them. */
static void say_images(const struct cmn_trainer *t, char *text, size_t bytes)
{
    char file[2 * CMN_TEXT + 64], name[128];
    size_t n, used = strlen(text);
    struct cmn_sample *sample = blamed(t, &n);

    if (!sample) {
        return;
    }
    if (t->bad_image >= 0 && t->bad_pass >= 0) {
        name_sample(t, &sample[t->bad_image], name, sizeof name);
        used += (size_t)snprintf(text + used, bytes - used, ", %s", name);
    }
    snprintf(file, sizeof file, "%s/%s-%ld.rank-%d.nonfinite.txt", t->session->backup, t->name,
             iteration(t), t->session->topology.rank);
    if (write_list(t, sample, n, file)) {
        used += (size_t)snprintf(text + used, bytes - used,
                                 "; its %zu images (%.200s could not be written: %s):", n, file,
                                 strerror(errno));
    } else {
        used +=
            (size_t)snprintf(text + used, bytes - used, "; its %zu images are in %.300s:", n, file);
    }
    for (size_t i = 0; i < n && i < SHOWN && used < bytes; i++) {
        name_sample(t, &sample[i], name, sizeof name);
        used += (size_t)snprintf(text + used, bytes - used, "%s %s", i ? "," : "", name);
    }
    if (n > SHOWN && used < bytes) {
        snprintf(text + used, bytes - used, ", …");
    }
    free(sample);
}

/* ---- looking ---- */

static void note(struct cmn_trainer *t, const struct cmn_nonfinite *found, int pass)
{
    long image = -1;

    if (t->bad.name) {
        return;
    }
    t->bad = *found;
    t->bad_pass = pass;
    cmn_nonfinite_origin(&t->gradients, cmn_net_of(t->net), t->why, sizeof t->why, &image);
    t->bad_image = image < t->local ? (int)image : -1;
    if (t->bad_image >= 0) {
        t->bad_pass = t->pass; /* what is to be seen is this pass's */
    }
}

static void say(const struct cmn_trainer *t, char text[TEXT])
{
    char what[160];

    cmn_nonfinite_say(cmn_net_of(t->net), &t->bad, what, sizeof what);
    snprintf(text, TEXT, "%s%s", what, t->why);
    say_images(t, text, TEXT);
}

static int stop(const struct cmn_trainer *t)
{
    char text[TEXT];

    say(t, text);
    return cmn_fail("iteration %ld: %s%s", iteration(t), text,
                    t->gradients.on_gpu || t->optimizer.policy->own_weights
                        ? ""
                        : " (cmn_nonfinite=skip would leave such a step out)");
}

int cmn_trainer_check_gradient(struct cmn_trainer *t, int i)
{
    struct cmn_gradients *g = &t->gradients;
    int last = t->pass + 1 == t->net->subdivisions;
    struct cmn_nonfinite found;

    if (mode(t) == CMN_NONFINITE_IGNORE) {
        return 0;
    }
    if (!t->looked) {
        t->looked = 1;
        if (cmn_nonfinite_loss(cmn_net_of(t->net), &found)) {
            note(t, &found, t->pass);
        }
    }
    for (; last && t->next < g->tensors && g->tensor[t->next].layer >= i; t->next++) {
        const struct cmn_tensor *tensor = &g->tensor[t->next];
        if (tensor->kind != CMN_GRADIENT) {
            continue;
        }
        if (g->on_gpu) {
            cmn_gradients_gpu_check(g, t->next);
        } else if (cmn_nonfinite_gradient(tensor, &found)) {
            note(t, &found, -1);
        }
    }
    return t->bad.name && mode(t) == CMN_NONFINITE_STOP ? stop(t) : 0;
}

/* What was exchanged meanwhile may have come over the gradient that was found. */
static void note_found(struct cmn_trainer *t, const struct cmn_tensor *tensor)
{
    const float *x;

    cmn_gradients_pull(&t->gradients, CMN_GRADIENT);
    x = cmn_nonfinite_find(*tensor->at, tensor->n);
    note(t, &(struct cmn_nonfinite){tensor->layer, tensor->part, tensor->name, x ? *x : NAN}, -1);
}

int cmn_trainer_gpu_checked(struct cmn_trainer *t)
{
    struct cmn_gradients *g = &t->gradients;
    const struct cmn_communicator *c = &t->optimizer.communicator;
    int found;

    if (!g->on_gpu || mode(t) == CMN_NONFINITE_IGNORE) {
        return 0;
    }
    if (t->session->topology.size > 1 && c->poll && cmn_device_wait(c->poll, t->optimizer.self)) {
        return -1;
    }
    found = cmn_gradients_gpu_checked(g);
    if (found < 0) {
        return 0;
    }
    note_found(t, &g->tensor[found]);
    return stop(t);
}

/* ---- leaving a step out ---- */

/* A pass with such numbers leaves them in the rolling statistics, too. */
static void move_statistics(struct cmn_trainer *t, int back)
{
    const struct cmn_gradients *g = &t->gradients;

    if (!t->statistics) {
        t->statistics = cmn_malloc(cmn_gradients_floats(g, CMN_STATISTIC), sizeof *t->statistics);
    }
    if (back) {
        cmn_gradients_unpack(g, CMN_STATISTIC, t->statistics);
    } else {
        cmn_gradients_pack(g, CMN_STATISTIC, t->statistics);
    }
}

int cmn_trainer_remember(struct cmn_trainer *t)
{
    t->bad.name = NULL;
    t->bad_pass = t->bad_image = -1;
    t->next = 0;
    t->current = t->trained;
    t->trained += (size_t)t->local * (size_t)t->net->subdivisions;
    if (mode(t) == CMN_NONFINITE_SKIP) {
        move_statistics(t, 0);
    }
    return 0;
}

static int tell(const struct cmn_trainer *t, int from)
{
    const struct cmn_topology *top = &t->session->topology;
    char text[TEXT] = "", host[sizeof top->host];

    memcpy(host, top->host, sizeof host);
    if (top->rank == from) {
        say(t, text);
    }
    if (cmn_mpi_check(MPI_Bcast(text, TEXT, MPI_CHAR, from, top->world), "MPI_Bcast") ||
        cmn_mpi_check(MPI_Bcast(host, sizeof host, MPI_CHAR, from, top->world), "MPI_Bcast")) {
        return -1;
    }
    cmn_report_clear(t->report);
    cmn_warn("iteration %ld is left out (%ld so far): rank %d@%s: %s", iteration(t), t->skipped,
             from, host, text);
    return 0;
}

int cmn_trainer_agree_to_skip(struct cmn_trainer *t)
{
    const struct cmn_topology *top = &t->session->topology;
    int least[3] = {t->bad.name ? top->rank : INT_MAX, cmn_stop_requested() != SIGINT,
                    cmn_stop_requested() != SIGTERM};

    if (mode(t) != CMN_NONFINITE_SKIP) {
        return 0;
    }
    if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, least, 3, MPI_INT, MPI_MIN, top->world),
                      "MPI_Allreduce")) {
        return -1;
    }
    if (least[0] == INT_MAX) {
        t->in_a_row = 0;
        return 0;
    }
    t->skipped++;
    if (++t->in_a_row == IN_A_ROW) {
        return cmn_fail("iteration %ld: %d steps in a row were left out (cmn_nonfinite=skip): the "
                        "network gives no finite numbers any more, so nothing is saved of it; "
                        "lower learning_rate, and go on from earlier weights or a checkpoint",
                        iteration(t), IN_A_ROW);
    }
    /* These come with the metrics otherwise. */
    t->interrupts += (float)!least[1];
    t->terminations += (float)!least[2];
    if ((t->skipped <= SAID || t->skipped % THEN_EVERY == 0) && tell(t, least[0])) {
        return -1;
    }
    move_statistics(t, 1);
    if (t->bad.name) {
        cmn_recurrent_state_reset(cmn_net_of(t->net), t->sequences);
    }
    return 1;
}

int cmn_trainer_worth_saving(const struct cmn_trainer *t)
{
    const struct cmn_gradients *g = &t->gradients;
    struct cmn_nonfinite found;
    char what[160];

    if (mode(t) == CMN_NONFINITE_IGNORE || t->session->command->does != CMN_TRAINS) {
        return 0;
    }
    cmn_gradients_pull(g, CMN_WEIGHT);
    cmn_gradients_pull(g, CMN_STATISTIC);
    if (!cmn_nonfinite_tensor(g, CMN_WEIGHT, &found) &&
        !cmn_nonfinite_tensor(g, CMN_STATISTIC, &found)) {
        return 0;
    }
    cmn_nonfinite_say(cmn_net_of(t->net), &found, what, sizeof what);
    return cmn_fail("the weights are not saved, for they are worthless: %s (cmn_nonfinite=ignore "
                    "would save them)",
                    what);
}
