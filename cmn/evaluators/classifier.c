#include "evaluators/classifier.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "base/log.h"
#include "base/random.h"

struct chunk {
    float *input, *truth;
    int *label; /* of each image, -1: none */
    int *best;  /* room for top-k */
};

struct count {
    long images, top1, topk;
    double loss;
};

int cmn_valid_open(struct cmn_labelled_images *set, const char *list_name, const char *labels,
                   int classes, int top)
{
    list *paths;
    int n = 0;

    set->labels = get_labels((char *)labels);
    while (set->labels[n]) {
        n++;
    }
    if (n < classes) {
        return cmn_fail("%s has %d labels for classes=%d", labels, n, classes);
    }
    paths = get_paths((char *)list_name);
    set->images = paths->size;
    set->paths = (char **)list_to_array(paths);
    free_list(paths);
    set->classes = classes;
    set->top = top < 1 ? 1 : top > classes ? classes : top;
    return 0;
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

static image load_sized(const network *net, const struct cmn_labelled_images *set, char *path)
{
    image whole, middle;

    if (set->stretch) {
        return load_image(path, net->w, net->h, net->c);
    }
    whole = load_image(path, 0, 0, net->c);
    middle = center_crop_image(whole, net->w, net->h);
    free_image(whole);
    return middle;
}

static int load(network *net, const struct cmn_labelled_images *set, int first, int n,
                struct chunk *c)
{
    memset(c->truth, 0, (size_t)n * (size_t)net->truths * sizeof *c->truth);
    for (int i = 0; i < n; i++) {
        image sized = load_sized(net, set, set->paths[first + i]);
        memcpy(c->input + (size_t)i * (size_t)net->inputs, sized.data,
               (size_t)net->inputs * sizeof *c->input);
        free_image(sized);
        c->label[i] = label_of(set, set->paths[first + i]);
        if (c->label[i] < 0 && set->classes > 1) {
            return cmn_fail("No label matches %s", set->paths[first + i]);
        }
        if (c->label[i] >= 0 && c->label[i] < net->truths) {
            c->truth[(size_t)i * (size_t)net->truths + (size_t)c->label[i]] = 1;
        }
    }
    return 0;
}

static void predict(network *net, struct chunk *c, int n)
{
    float *input = net->input, *truth = net->truth, *delta = net->delta;
    int train = net->train, batch = net->batch;

    set_batch_network(net, n);
    net->input = c->input;
    net->truth = c->truth;
    net->train = 0;
    net->delta = NULL;
    forward_network(net);
    net->input = input;
    net->truth = truth;
    net->train = train;
    net->delta = delta;
    set_batch_network(net, batch);
}

static int is_right(const struct cmn_labelled_images *set, const char *path, int label, int guess)
{
    return set->stretch ? strstr(path, set->labels[guess]) != NULL : guess == label;
}

static void score_chunk(network *net, const struct cmn_labelled_images *set, const struct chunk *c,
                        int first, int n, struct count *count)
{
    for (int i = 0; i < n; i++) {
        float *out = net->output + (size_t)i * (size_t)net->outputs;
        const char *path = set->paths[first + i];
        int in_top = 0;
        if (net->hierarchy && !set->stretch) {
            hierarchy_predictions(out, net->outputs, net->hierarchy, 1, 1);
        }
        top_k(out, set->classes, set->top, c->best);
        count->top1 += is_right(set, path, c->label[i], c->best[0]);
        for (int j = 0; j < set->top && !in_top; j++) {
            in_top = is_right(set, path, c->label[i], c->best[j]);
        }
        count->topk += in_top;
    }
    count->images += n;
    count->loss += *net->cost;
}

static int add_up(const struct count *mine, const struct cmn_topology *t, struct cmn_score *score)
{
    long counts[3] = {mine->images, mine->top1, mine->topk};
    double loss = mine->loss;

    if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, counts, 3, MPI_LONG, MPI_SUM, t->world),
                      "MPI_Allreduce") ||
        cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, t->world),
                      "MPI_Allreduce")) {
        return cmn_fail_in("evaluation");
    }
    score->images = counts[0];
    score->top1 = counts[1];
    score->topk = counts[2];
    score->loss = counts[0] ? loss / (double)counts[0] : 0;
    return 0;
}

static int has_cost(const network *net)
{
    for (int i = 0; i < net->n; i++) {
        if (net->layers[i].cost) {
            return 1;
        }
    }
    return 0;
}

int cmn_evaluator_refuses(const struct network *net)
{
    for (int i = 0; i < net->n; i++) {
        if (net->layers[i].steps > 1) {
            return cmn_fail("layer %d takes time_steps=%d images one after the other, and an "
                            "evaluation takes each by itself: evaluate with time_steps=1 in the "
                            "cfg, and train with cmn_validate=0",
                            i, net->layers[i].steps);
        }
    }
    return 0;
}

int cmn_evaluate(struct network *net, const struct cmn_labelled_images *set, int chunk,
                 const struct cmn_topology *t, struct cmn_score *score)
{
    struct count count = {0, 0, 0, 0};
    struct chunk c;
    int chunks = (set->images + chunk - 1) / chunk;
    int result = -1;

    if (cmn_evaluator_refuses(net)) {
        return -1;
    }
    c.input = calloc((size_t)chunk * (size_t)net->inputs, sizeof *c.input);
    c.truth = calloc((size_t)chunk * (size_t)net->truths, sizeof *c.truth);
    c.label = calloc((size_t)chunk, sizeof *c.label);
    c.best = calloc((size_t)set->top, sizeof *c.best);
    if (!c.input || !c.truth || !c.label || !c.best) {
        cmn_fail("evaluation: out of memory for %d images", chunk);
        goto out;
    }
    for (int i = t->rank; i < chunks; i += t->size) {
        int first = i * chunk;
        int n = set->images - first < chunk ? set->images - first : chunk;
        cmn_random_named(CMN_RANDOM_EVALUATION, (uint64_t)i);
        if (load(net, set, first, n, &c)) {
            goto out;
        }
        predict(net, &c, n);
        score_chunk(net, set, &c, first, n, &count);
    }
    cmn_random_common();
    if (!has_cost(net)) {
        count.loss = 0;
    }
    result = add_up(&count, t, score);
out:
    free(c.input);
    free(c.truth);
    free(c.label);
    free(c.best);
    return result;
}
