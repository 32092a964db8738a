/* The handle of a network. */
#include "engine/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/gpu_batch.h"

/* ---- the handle ---- */

const char *cmn_net_weights_refusal(const struct network *net, int revision)
{
    static char why[256];

    for (int i = 0; i < net->n && (revision != 0) != cmn_tree.numbers_revisions; i++) {
        LAYER_TYPE type = net->layers[i].type;
        if (type == BATCHNORM) {
            snprintf(why, sizeof why,
                     "%s Darknet wrote these weights, and orders those of layer %d (%s) in another "
                     "way: start without them, or use that Darknet",
                     revision ? "AlexeyAB's" : "pjreddie's", i, get_layer_string(type));
            return why;
        }
    }
    return NULL;
}

static const layer *layer_of(const struct cmn_net *net, int i)
{
    return &cmn_network(net)->layers[i];
}

/* ---- shape ---- */

int cmn_net_layers(const struct cmn_net *net)
{
    return cmn_network(net)->n;
}

const char *cmn_net_layer_name(const struct cmn_net *net, int i)
{
    switch (layer_of(net, i)->type) { /* types that Darknet has no name for */
    case UPSAMPLE:
        return "upsample";
    case ISEG:
        return "iseg";
    case LOGXENT:
        return "logistic";
    default:
        return cmn_tree_layer(layer_of(net, i)).name;
    }
}

int cmn_net_batch(const struct cmn_net *net)
{
    return cmn_network(net)->batch;
}

int cmn_net_subdivisions(const struct cmn_net *net)
{
    return cmn_network(net)->subdivisions;
}

struct cmn_net_size cmn_net_size(const struct cmn_net *net)
{
    return (struct cmn_net_size){cmn_network(net)->w, cmn_network(net)->h};
}

static int is_same(struct cmn_net_size a, struct cmn_net_size b)
{
    return a.width == b.width && a.height == b.height;
}

void cmn_net_resize(struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_size now = cmn_net_size(net);

    if (!is_same(now, size)) {
        resize_network(cmn_network(net), size.width, size.height);
    }
}

static int is_drawn(struct cmn_net_size size, const struct cmn_tree_sizes *drawn)
{
    return size.width >= drawn->least && size.width <= drawn->most && size.height >= drawn->least &&
           size.height <= drawn->most &&
           (!drawn->squares || (size.width == size.height && size.width % 32 == 0));
}

int cmn_net_check_size(const struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_size now = cmn_net_size(net);
    struct cmn_tree_sizes drawn = cmn_tree_earlier_sizes(cmn_network(net));

    if (is_same(size, now) || is_drawn(size, &drawn)) {
        return 0;
    }
    return cmn_fail("width and height are %d and %d, and must be %d and %d, as the cfg says, or "
                    "%sfrom %d to %d, as %s",
                    size.width, size.height, now.width, now.height,
                    drawn.squares ? "a square of a multiple of 32 " : "", drawn.least, drawn.most,
                    drawn.squares ? "random=1 draws it" : "random draws them");
}

void cmn_net_resize_as_drawn(struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_tree_sizes drawn = cmn_tree_random_sizes(cmn_network(net));

    if (is_drawn(size, &drawn)) {
        cmn_net_resize(net, size);
    }
}

static int has_layer(const struct cmn_net *net, LAYER_TYPE type)
{
    const network *n = cmn_network(net);
    int found = 0;

    for (int i = 0; i < n->n; i++) {
        found |= n->layers[i].type == type;
    }
    return found;
}

int cmn_net_convolves(const struct cmn_net *net)
{
    return has_layer(net, CONVOLUTIONAL);
}

int cmn_net_connects(const struct cmn_net *net)
{
    return has_layer(net, CONNECTED);
}

int cmn_net_classifies(const struct cmn_net *net)
{
    const network *n = cmn_network(net);

    return cmn_net_truths(net) == (size_t)n->outputs && !n->hierarchy;
}

int cmn_net_has_loss(const struct cmn_net *net)
{
    for (int i = 0; i < cmn_net_layers(net); i++) {
        if (layer_of(net, i)->cost) {
            return 1;
        }
    }
    return 0;
}

int cmn_net_box_classes(const struct cmn_net *net, int i)
{
    const layer *l = layer_of(net, i);

    return cmn_tree_layer(l).finds_boxes ? l->classes : -1;
}

int cmn_net_detected_classes(const struct cmn_net *net)
{
    return cmn_net_box_classes(net, cmn_tree_detector(cmn_network(net)));
}

int cmn_net_label_class(const struct cmn_net *net, int class)
{
    const layer *l = layer_of(net, cmn_tree_detector(cmn_network(net)));

    /* The map ends with a number that is not a class. */
    for (int i = 0; l->map && i < class; i++) {
        if (l->map[i] < 0 || l->map[i] >= l->classes) {
            return -1;
        }
    }
    class = l->map && class >= 0 ? l->map[class] : class;
    return class >= 0 && class < l->classes ? class : -1;
}

int cmn_net_detects(const struct cmn_net *net)
{
    return cmn_net_detected_classes(net) > 0;
}

/* ---- progress of the training ---- */

size_t cmn_net_seen(const struct cmn_net *net)
{
    return *cmn_network(net)->seen;
}

int cmn_net_updates(const struct cmn_net *net)
{
    const int *t = cmn_network(net)->t;

    return t ? *t : 0;
}

void cmn_net_set_updates(struct cmn_net *net, int updates)
{
    if (cmn_network(net)->t) {
        *cmn_network(net)->t = updates;
    }
}

int cmn_net_last_iteration(const struct cmn_net *net)
{
    return cmn_network(net)->max_batches;
}

void cmn_net_set_last_iteration(struct cmn_net *net, int iteration)
{
    cmn_network(net)->max_batches = iteration;
}

int cmn_net_training_ended(const struct cmn_net *net)
{
    int last = cmn_net_last_iteration(net);

    return last && cmn_net_iteration(net) >= (size_t)last;
}

void cmn_net_stop_after_this_iteration(struct cmn_net *net)
{
    cmn_net_set_last_iteration(net, (int)cmn_net_iteration(net));
}

/* ---- learning rate ---- */

float cmn_net_learning_rate(const struct cmn_net *net)
{
    return cmn_network(net)->learning_rate;
}

void cmn_net_scale_learning_rate(struct cmn_net *net, float factor)
{
    cmn_network(net)->learning_rate *= factor;
}

int cmn_net_burn_in(const struct cmn_net *net)
{
    return cmn_network(net)->burn_in;
}

/* ---- the micro-batch that was just computed ---- */

float cmn_net_loss(const struct cmn_net *net)
{
    if (cmn_net_on_gpu(net)) {
        cmn_gpu_batch_answer(cmn_network(net));
    }
    return cmn_tree_loss(cmn_network(net));
}

int cmn_net_count_right(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    size_t each = (size_t)n->outputs;
    int right = 0;

    if (cmn_net_classifies(net)) {
        cmn_tree_fetch_output(n);
    }
    for (size_t i = 0; i < (size_t)n->batch && cmn_net_classifies(net); i++) {
        right += max_index(n->output + i * each, n->outputs) ==
                 max_index(n->truth + i * each, n->outputs);
    }
    return right;
}

float *cmn_net_save_batch(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    size_t inputs = cmn_net_inputs(net) * (size_t)n->batch;
    size_t truths = cmn_net_truths(net) * (size_t)n->batch;
    float *saved;

    if (!cmn_tree.keeps_batch) {
        return NULL; /* each step has its own memory for them */
    }
    saved = cmn_malloc(inputs + truths, sizeof *saved);
    memcpy(saved, n->input, inputs * sizeof *saved);
    memcpy(saved + inputs, n->truth, truths * sizeof *saved);
    return saved;
}

void cmn_net_restore_batch(struct cmn_net *net, float *saved)
{
    network *n = cmn_network(net);
    size_t inputs = cmn_net_inputs(net) * (size_t)n->batch;
    size_t truths = cmn_net_truths(net) * (size_t)n->batch;

    if (!saved) {
        return;
    }
    memcpy(n->input, saved, inputs * sizeof *saved);
    memcpy(n->truth, saved + inputs, truths * sizeof *saved);
    free(saved);
}

/* ---- files ---- */

void cmn_net_name(const char *cfg, char *name, size_t bytes)
{
    char *base = basecfg((char *)cfg);

    snprintf(name, bytes, "%s", base);
    free(base);
}

void cmn_net_write_weights(struct cmn_net *net, FILE *out)
{
    cmn_tree_write_weights(cmn_network(net), out, cmn_network(net)->n, 0);
}
