#include "evaluators/classifier.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/random.h"
#include "engine/inference.h"
#include "engine/net.h"
#include "mpi/call.h"

struct chunk {
    float *input, *truth;
    int *label; /* label of each image; -1: none */
    int *best;  /* room for the top k classes of an image */
};

char **cmn_valid_labels(const char *labels, int classes)
{
    int n;
    char **names = cmn_read_names(labels, &n);

    if (n < classes) {
        cmn_fatal(CMN_TOO_FEW_NAMES, labels, n, "labels", classes);
    }
    for (int i = 0; i < classes; i++) {
        if (!names[i][0]) {
            cmn_fatal("%s:%d: the label is empty, and would be a part of each path: each line has "
                      "one",
                      labels, i + 1);
        }
    }
    return names;
}

void cmn_valid_open(struct cmn_labelled_images *set, const char *list, const char *labels,
                    int classes, int top)
{
    set->labels = cmn_valid_labels(labels, classes);
    set->paths = cmn_read_paths(list, &set->images);
    set->classes = classes;
    set->top = top < 1 ? 1 : top > classes ? classes : top;
}

static int label_of(const struct cmn_labelled_images *set, const char *path)
{
    for (int j = 0; j < set->classes; j++) {
        if (strstr(path, set->labels[j])) {
            return j;
        }
    }
    return -1;
}

static void load(const struct cmn_net *net, const struct cmn_labelled_images *set, int first, int n,
                 struct chunk *c)
{
    size_t inputs = cmn_net_inputs(net), truths = cmn_net_truths(net);

    memset(c->truth, 0, (size_t)n * truths * sizeof *c->truth);
    for (int i = 0; i < n; i++) {
        const char *path = set->paths[first + i];
        struct cmn_image image = cmn_image_load(net, path, CMN_IMAGE_CROP);
        memcpy(c->input + (size_t)i * inputs, image.data, inputs * sizeof *c->input);
        cmn_image_free(&image);
        c->label[i] = label_of(set, path);
        if (c->label[i] < 0 && set->classes > 1) {
            cmn_fatal("%s: no label matches; its path must contain one of the labels", path);
        }
        if (c->label[i] >= 0 && (size_t)c->label[i] < truths) {
            c->truth[(size_t)i * truths + (size_t)c->label[i]] = 1;
        }
    }
}

static void score_chunk(struct cmn_net *net, const struct cmn_labelled_images *set,
                        const struct chunk *c, int n, struct cmn_score *score)
{
    for (int i = 0; i < n; i++) {
        int in_top = 0;
        cmn_net_best_classes(net, i, set->classes, set->top, c->best);
        score->top1 += c->label[i] == c->best[0];
        for (int j = 0; j < set->top && !in_top; j++) {
            in_top = c->label[i] == c->best[j];
        }
        score->topk += in_top;
    }
    score->images += n;
    score->loss += (double)cmn_net_loss(net);
}

/* Collective. Adds up what the ranks have counted; the loss becomes the mean. */
static void add_up(struct cmn_score *score, const struct cmn_topology *t)
{
    long *counts[] = {&score->images, &score->top1, &score->topk};

    for (int i = 0; i < 3; i++) {
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, counts[i], 1, MPI_LONG, MPI_SUM, t->world));
    }
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &score->loss, 1, MPI_DOUBLE, MPI_SUM, t->world));
    score->loss = score->images ? score->loss / (double)score->images : 0;
}

void cmn_evaluate(struct cmn_net *net, const struct cmn_labelled_images *set, int chunk,
                  const struct cmn_topology *t, struct cmn_score *score)
{
    struct chunk c;
    int chunks = (set->images + chunk - 1) / chunk;

    *score = (struct cmn_score){0};
    c.input = cmn_calloc((size_t)chunk * cmn_net_inputs(net), sizeof *c.input);
    c.truth = cmn_calloc((size_t)chunk * cmn_net_truths(net), sizeof *c.truth);
    c.label = cmn_calloc((size_t)chunk, sizeof *c.label);
    c.best = cmn_calloc((size_t)set->top, sizeof *c.best);
    for (int i = t->rank; i < chunks; i += t->size) {
        int first = i * chunk;
        int n = set->images - first < chunk ? set->images - first : chunk;
        cmn_random_named(CMN_RANDOM_EVALUATION, (uint64_t)i);
        load(net, set, first, n, &c);
        cmn_net_predict(net, c.input, c.truth, n);
        score_chunk(net, set, &c, n, score);
    }
    cmn_random_common();
    if (!cmn_net_has_loss(net)) {
        score->loss = 0;
    }
    add_up(score, t);
    free(c.input);
    free(c.truth);
    free(c.label);
    free(c.best);
}
