#include "trainer/feed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "config/cfg_file.h"
#include "config/pairs.h"
#include "data/scatter.h"
#include "engine/gradients.h"
#include "engine/inference.h"

/* ---- the division of a step ---- */

/* Each rank has a batch of its own: for cmn_batch=per_rank, and for all commands but trainings. */
static struct cmn_share own_batches(int batch, int micro_batches, int rank, int ranks)
{
    return (struct cmn_share){
        .micro_batches = micro_batches,
        .local = batch,
        .step = batch * micro_batches * ranks,
        .dealt = batch * ranks,
        .offset = batch * rank,
        .seen_each = batch * ranks,
        .before = {1, 0, 1},
        .after = {1, 0, 1},
    };
}

/* cmn_sync_bn: each rank has a part of every micro-batch, over which layers compute statistics. */
static struct cmn_share slices(int batch, int micro_batches, int rank, int ranks)
{
    int offset = (int)((long)batch * rank / ranks);

    if (batch < ranks) {
        cmn_fatal("cmn_batch=global: %d image%s a micro-batch (batch divided by subdivisions) "
                  "cannot be divided over %d ranks, as cmn_sync_bn=on needs "
                  "it: raise batch, or lower subdivisions or the number of ranks",
                  batch, batch == 1 ? "" : "s", ranks);
    }
    return (struct cmn_share){
        .micro_batches = micro_batches,
        .local = (int)((long)batch * (rank + 1) / ranks) - offset,
        .step = batch * micro_batches,
        .dealt = batch,
        .offset = offset,
        .seen_each = batch,
        .before = {1, 0, 1},
        .after = {1, 0, 1},
    };
}

/* Each rank has some of the cfg's micro-batches.
 *
 * One process would update a rolling statistic R in every micro-batch: R = k R + (1 - k) x. After a
 * step of n micro-batches, which the N ranks have divided,
 *     R' = k^n R + sum over the ranks of k^(n - end) C,
 * with C the contribution of a rank's own micro-batches, the last of which has the number `end`. By
 * the factors `before` and `after` each rank gets k^n R plus N times its own part of the sum; the
 * mean over the ranks is R'. */
static struct cmn_share whole_micro_batches(int batch, int micro_batches, int rank, int ranks)
{
    int first = (int)((long)micro_batches * rank / ranks);
    int end = (int)((long)micro_batches * (rank + 1) / ranks);

    return (struct cmn_share){
        .micro_batches = end - first,
        .local = batch,
        .step = batch * micro_batches,
        .dealt = batch * micro_batches,
        .offset = batch * first,
        .seen_before = batch * first,
        .seen_each = batch,
        .whole = 1,
        .before = {1. / ranks, first, 1},
        .after = {ranks, micro_batches - end, 1},
    };
}

/* cmn_exact: like whole_micro_batches(), but exact_statistics.c merges the statistics. Darknet's
 * trainers know no empty step, so ranks without a micro-batch load that of another rank and compute
 * nothing. */
static struct cmn_share exact(int batch, int micro_batches, int rank, int ranks)
{
    int busy = ranks < micro_batches ? ranks : micro_batches;
    struct cmn_share share = whole_micro_batches(batch, micro_batches, rank % busy, busy);

    share.first = share.offset / batch;
    share.spare = rank >= busy;
    share.before = share.after = (struct cmn_rolling_factor){1, 0, 1};
    return share;
}

/* With more ranks than micro-batches, each rank has one micro-batch with its part of the step's
 * images. For the rolling statistics it counts as all n micro-batches of the cfg:
 *     R' = k^n R + (1 - k^n) x
 * For layers that learn otherwise in the beginning, it counts as the one that its first image is
 * in. */
static struct cmn_share single_micro_batch(int batch, int micro_batches, int rank, int ranks)
{
    int all = batch * micro_batches, offset = (int)((long)all * rank / ranks);

    if (all < ranks) {
        cmn_fatal(
            "cmn_batch=global: %d image%s a step (batch in the cfg) cannot be divided over %d "
            "ranks: raise batch, or lower the number of ranks",
            all, all == 1 ? "" : "s", ranks);
    }
    return (struct cmn_share){
        .micro_batches = 1,
        .local = (int)((long)all * (rank + 1) / ranks) - offset,
        .step = all,
        .dealt = all,
        .offset = offset,
        .seen_before = offset / batch * batch,
        .seen_each = batch,
        .before = {1, micro_batches - 1, -micro_batches},
        .after = {1, 0, micro_batches},
    };
}

struct cmn_share cmn_feed_share(const struct cmn_session *s, int batch, int micro_batches)
{
    int rank = s->topology.rank, ranks = s->topology.size, n = micro_batches;

    if (s->options.batch == CMN_BATCH_PER_RANK || s->command->does != CMN_TRAINS) {
        return own_batches(batch, n, rank, ranks);
    }
    if (s->options.exact) {
        return exact(batch, n, rank, ranks);
    }
    if (s->options.sync_bn) {
        return slices(batch, n, rank, ranks);
    }
    return ranks <= n ? whole_micro_batches(batch, n, rank, ranks)
                      : single_micro_batch(batch, n, rank, ranks);
}

static int balances(const struct cmn_feed *f)
{
    return f->balance.on;
}

/* Only with cmn_exact. */
static void open_balance(struct cmn_feed *f)
{
    int ranks = f->session->topology.size, micro_batches = cmn_feed_exact(f);

    if (micro_batches) {
        cmn_balance_open(&f->balance, ranks, micro_batches,
                         f->session->options.balance == CMN_BALANCE_AUTO);
        f->first = cmn_calloc((size_t)ranks + 1, sizeof *f->first);
        cmn_balance_first(&f->balance, 0, f->first);
    }
}

void cmn_feed_open(struct cmn_feed *f, const struct cmn_session *s, struct cmn_net *net, int batch,
                   int micro_batches)
{
    *f = (struct cmn_feed){.session = s, .net = net};
    f->share = cmn_feed_share(s, batch, micro_batches);
    if (cmn_net_traits(net).compares_images && f->share.local < batch) {
        cmn_fatal("contrastive=1 in the cfg compares the images of a micro-batch with each other, "
                  "and %d ranks would divide each: take at most %d ranks (subdivisions), without "
                  "cmn_sync_bn, or cmn_batch=per_rank",
                  s->topology.size, micro_batches);
    }
    open_balance(f);
}

void cmn_feed_close(struct cmn_feed *f)
{
    cmn_sampler_close(f->sampler);
    f->sampler = NULL;
    cmn_balance_close(&f->balance);
    free(f->first);
    f->first = NULL;
}

size_t cmn_feed_step_images(const struct cmn_feed *f)
{
    return (size_t)f->share.step;
}

int cmn_feed_exact(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;

    return s->options.exact && s->command->does == CMN_TRAINS ? f->share.step / f->share.local : 0;
}

void cmn_feed_seed_micro_batch(size_t seen, int number)
{
    cmn_random_named(CMN_RANDOM_MICRO_BATCH,
                     cmn_random_hash((uint64_t)seen, (uint64_t)number, 0, 0));
}

size_t cmn_feed_own_images(const struct cmn_feed *f)
{
    return (size_t)f->share.local * (size_t)f->share.micro_batches;
}

/* ---- learning rate ----
 *
 * cmn_scale_lr=linear: N ranks with a batch each use N times the cfg's rate (linear scaling: Goyal
 * et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017). The effect is that
 * of another learning_rate in the cfg, so every policy works as usual, and burn_in is the warm-up:
 * from 0 to the scaled rate, by `power`. */

enum { WARM_EPOCHS = 5 }; /* the warm-up of Goyal et al. */

static int scales_rate(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;

    return s->options.scale_lr == CMN_SCALE_LINEAR && s->command->does == CMN_TRAINS &&
           s->options.batch == CMN_BATCH_PER_RANK;
}

void cmn_feed_scale_rate(const struct cmn_feed *f)
{
    if (scales_rate(f)) {
        cmn_net_scale_learning_rate(f->net, (float)f->session->topology.size);
    }
}

/* Describes in words what burn_in does in this training. */
static void describe_warm_up(const struct cmn_feed *f, char *text, size_t bytes)
{
    int burn_in = cmn_net_burn_in(f->net), last = cmn_net_last_iteration(f->net);
    size_t images = f->session->train_images * WARM_EPOCHS;

    if (burn_in && last && burn_in >= last) {
        snprintf(text, bytes,
                 ": never reached, for burn_in=%d does not end before iteration %d, the last one: "
                 "lower it",
                 burn_in, last);
    } else if (burn_in) {
        snprintf(text, bytes, ", reached after burn_in=%d iterations", burn_in);
    } else if (images) {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in (%d epochs "
                 "are %zu iterations)",
                 WARM_EPOCHS, images / cmn_feed_step_images(f));
    } else {
        snprintf(text, bytes,
                 " from the first iteration on; where that diverges, warm up by burn_in");
    }
}

void cmn_feed_tell_rate(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;
    char warm_up[256];

    if (s->options.scale_lr != CMN_SCALE_LINEAR || s->topology.size == 1) {
        return;
    }
    if (!scales_rate(f)) {
        cmn_say("cmn_scale_lr=linear changes nothing with cmn_batch=global: the batch of all ranks "
                "is the cfg's");
        return;
    }
    describe_warm_up(f, warm_up, sizeof warm_up);
    cmn_say("learning rate %g, %d times the cfg's%s", (double)cmn_net_learning_rate(f->net),
            s->topology.size, warm_up);
}

long cmn_feed_epoch(const struct cmn_feed *f, size_t images)
{
    return f->session->train_images ? (long)(images / f->session->train_images) : 0;
}

void cmn_feed_set_epochs(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;
    size_t images = (size_t)s->options.epochs * s->train_images;
    size_t steps = (images + cmn_feed_step_images(f) - 1) / cmn_feed_step_images(f);

    if (steps > INT_MAX) {
        cmn_fatal("cmn_epochs=%ld: %zu iterations are more than Darknet can count; lower it",
                  s->options.epochs, steps);
    }
    if (steps) {
        cmn_net_set_last_iteration(f->net, (int)steps);
    }
}

/* ---- files for other hosts ---- */

static void scatter_image(const struct cmn_session *s, const char *image, int wanted)
{
    char label[CMN_LABEL_FILE];

    cmn_scatter_add(image, wanted, 0);
    if (s->command->answer == CMN_BOXES) {
        cmn_label_file(image, label);
        cmn_scatter_add(label, wanted, 1);
    }
}

static void scatter_images(const struct cmn_session *s, char *const *paths, int n)
{
    for (int i = 0; i < n; i++) {
        scatter_image(s, paths[i], 1);
    }
}

/* Sends the added files. Only a resumed training complains about a file that has changed. */
static void scatter(const struct cmn_session *s)
{
    cmn_scatter_send(s->resumed_steps > 0, s->options.report == CMN_REPORT_TABLE);
}

void cmn_feed_scatter_paths(const struct cmn_session *s, char *const *paths, int n)
{
    if (s->options.data == CMN_DATA_SCATTER) {
        scatter_images(s, paths, n);
        scatter(s);
    }
}

/* Returns a flag for each image of the training list that this rank loads, or NULL for all images.
 * The caller frees it. */
static char *own_images(const struct cmn_feed *f)
{
    const struct cmn_session *s = f->session;
    struct cmn_sampler_plan plan = {.seed = s->seed,
                                    .rank = s->topology.rank,
                                    .size = s->topology.size,
                                    .images = s->train_images};
    char *mine = NULL;
    size_t n, *shard;

    if (s->options.scatter == CMN_SCATTER_SHARD && !cmn_net_traits(f->net).draws_images) {
        mine = cmn_calloc(plan.images + 1, 1);
        shard = cmn_sampler_shard(&plan, &n);
        for (size_t i = 0; i < n; i++) {
            mine[shard[i]] = 1;
        }
        free(shard);
    }
    return mine;
}

void cmn_feed_scatter(const struct cmn_feed *f, FILE *list)
{
    const struct cmn_session *s = f->session;
    char *mine, *line = NULL;
    size_t bytes = 0, image = 0;

    if (s->options.data != CMN_DATA_SCATTER) {
        return;
    }
    mine = own_images(f);
    for (ssize_t n; (n = getline(&line, &bytes, list)) >= 0;) {
        char *name = ftell(list) == n ? cmn_cfg_behind_mark(line) : line;
        int is_blank = name[strspn(name, " \t\r\n")] == '\0';
        n -= n && line[n - 1] == '\n';
        n -= n && line[n - 1] == '\r';
        line[n] = '\0';
        if (!is_blank) {
            scatter_image(s, name, mine ? mine[image++] : 1);
        }
    }
    rewind(list);
    free(line);
    free(mine);
    scatter_images(s, s->valid.paths, s->valid.images);
    scatter_images(s, s->boxes.paths, s->boxes.images);
    scatter(s);
}

/* ---- the next samples ---- */

/* May be called in a loader thread. In the first call the main thread waits for that thread; later
 * the main thread works with the network at the same time. */
static void open_sampler(struct cmn_feed *f, size_t images)
{
    const struct cmn_session *s = f->session;
    struct cmn_sampler_plan plan;

    if (f->sampler) {
        return;
    }
    plan = (struct cmn_sampler_plan){
        .mode = (enum cmn_scatter_mode)s->options.scatter,
        .seed = s->seed,
        .rank = s->topology.rank,
        .size = s->topology.size,
        .images = f->share.spare ? 1 : images, /* a spare rank's one image is never used */
        /* So a step holds the same images on any number of ranks. */
        .step = (size_t)f->share.dealt,
        .offset = (size_t)f->share.offset,
        .mine = f->share.dealt == f->share.step ? cmn_feed_own_images(f) : (size_t)f->share.local,
        .origin = cmn_net_seen(f->net),
    };
    if (balances(f)) { /* number the samples of all ranks together */
        plan.offset = 0;
        plan.mine = plan.step;
    }
    f->batch = cmn_feed_own_images(f);
    f->sampler = cmn_sampler_open(&plan);
}

/* The samples of a step have consecutive numbers over all ranks. A loader thread calls this for the
 * step after the one that is computed. */
static size_t next_balanced(struct cmn_feed *f, size_t *n)
{
    size_t step = (size_t)f->share.step, one = (size_t)f->share.local, first = f->drawn;
    int ranks = f->balance.ranks, rank = f->session->topology.rank;
    int *deal = cmn_calloc((size_t)ranks + 1, sizeof *deal);

    cmn_balance_first(&f->balance, (long)(first / step), deal);
    *n = (size_t)(deal[rank + 1] - deal[rank]) * one;
    first += (size_t)deal[rank] * one;
    f->drawn += step;
    free(deal);
    return first;
}

size_t cmn_feed_next_batch(struct cmn_feed *f, size_t *wanted, size_t images)
{
    size_t first = f->drawn, n = *wanted;

    open_sampler(f, images);
    if (n != f->batch) {
        cmn_fatal("the trainer asks for %zu images a batch, the network takes %zu: is the network "
                  "the one that load_network has loaded last?",
                  n, f->batch);
    }
    if (balances(f)) {
        return next_balanced(f, wanted);
    }
    f->drawn += n;
    return first;
}

void cmn_feed_rewind(struct cmn_feed *f)
{
    f->drawn -= balances(f) ? (size_t)f->share.step : f->batch;
}

size_t cmn_feed_next_sample(struct cmn_feed *f, size_t rows)
{
    struct cmn_sample sample;

    if (cmn_pairs_check_trait(&f->session->options, CMN_TRAINS_IN_MEMORY,
                              "samples that lie in memory")) {
        cmn_fatal_reason();
    }
    open_sampler(f, rows);
    cmn_sampler_next(f->sampler, f->drawn++, 1, &sample);
    return sample.image;
}

/* ---- the samples of a step ---- */

int cmn_feed_seen(const struct cmn_feed *f, int micro_batch)
{
    return f->share.seen_before + (micro_batch + 1) * f->share.seen_each;
}

int cmn_feed_begin_step(struct cmn_feed *f)
{
    struct cmn_share *share = &f->share;
    int rank = f->session->topology.rank;

    if (!balances(f)) {
        f->step_first = f->step_end;
        f->step_end += cmn_feed_own_images(f);
        return 0;
    }
    cmn_balance_first(&f->balance, f->step, f->first);
    share->first = f->first[rank];
    share->micro_batches = f->first[rank + 1] - share->first;
    share->offset = share->seen_before = share->first * share->local;
    f->step_first = (size_t)f->step++ * (size_t)share->step + (size_t)share->offset;
    return 1;
}

size_t cmn_feed_samples(const struct cmn_feed *f, int micro_batch, struct cmn_sample **sample)
{
    size_t one = (size_t)f->share.local, n = micro_batch < 0 ? cmn_feed_own_images(f) : one;
    size_t first = f->step_first + (micro_batch < 0 ? 0 : (size_t)micro_batch * one);

    *sample = NULL;
    if (!f->sampler) {
        return 0;
    }
    *sample = cmn_calloc(n + 1, sizeof **sample);
    cmn_sampler_next(f->sampler, first, n, *sample);
    return n;
}

void cmn_feed_name_sample(const struct cmn_feed *f, const struct cmn_sample *sample, char *text,
                          size_t bytes)
{
    char **paths = atomic_load(&((struct cmn_feed *)f)->paths);

    if (paths) {
        snprintf(text, bytes, "%s", paths[sample->image]);
    } else {
        snprintf(text, bytes, "sample %zu of the data", sample->image);
    }
}
