/* The handle of a network over pjreddie's Darknet. */
#include "engine/net.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "network.h"

#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "mpi/device.h"

/* ---- the handle ---- */

struct cmn_net *cmn_net_of(struct network *net)
{
    return (struct cmn_net *)net;
}

struct network *cmn_network(const struct cmn_net *net)
{
    return (struct network *)net;
}

int cmn_net_on_gpu(const struct cmn_net *net)
{
    return cmn_device_built() && cmn_network(net)->gpu_index >= 0;
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
    switch (layer_of(net, i)->type) { /* those that Darknet has no words for */
    case UPSAMPLE:
        return "upsample";
    case ISEG:
        return "iseg";
    case LOGXENT:
        return "logistic";
    case L2NORM:
        return "l2norm";
    default:
        return get_layer_string(layer_of(net, i)->type);
    }
}

int cmn_net_batch(const struct cmn_net *net)
{
    return cmn_network(net)->batch;
}

void cmn_net_set_batch(struct cmn_net *net, int n)
{
    set_batch_network(cmn_network(net), n);
}

int cmn_net_subdivisions(const struct cmn_net *net)
{
    return cmn_network(net)->subdivisions;
}

int cmn_net_time_steps(const struct cmn_net *net)
{
    return cmn_network(net)->time_steps;
}

int cmn_net_first_recurrent_layer(const struct cmn_net *net)
{
    for (int i = 0; i < cmn_net_layers(net); i++) {
        if (layer_of(net, i)->steps > 1) {
            return i;
        }
    }
    return -1;
}

size_t cmn_net_inputs(const struct cmn_net *net)
{
    return (size_t)cmn_network(net)->inputs;
}

size_t cmn_net_truths(const struct cmn_net *net)
{
    return (size_t)cmn_network(net)->truths;
}

struct cmn_net_size cmn_net_size(const struct cmn_net *net)
{
    return (struct cmn_net_size){cmn_network(net)->w, cmn_network(net)->h};
}

void cmn_net_resize(struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_size now = cmn_net_size(net);

    if (now.width != size.width || now.height != size.height) {
        resize_network(cmn_network(net), size.width, size.height);
    }
}

/* As detector train draws them, and classifier train. */
static const struct cmn_net_range of_detectors = {320, 608}, of_classifiers = {128, 448};

struct cmn_net_range cmn_net_random_sizes(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    const layer *last = layer_of(net, n->n - 1);

    if ((last->type == YOLO || last->type == REGION) && last->random) {
        return of_detectors;
    }
    return n->random ? of_classifiers : (struct cmn_net_range){0, 0};
}

static int is_drawn(struct cmn_net_size size, int least, int most)
{
    return size.width == size.height && size.width % 32 == 0 && size.width >= least &&
           size.width <= most;
}

int cmn_net_check_size(const struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_size now = cmn_net_size(net);

    if ((size.width == now.width && size.height == now.height) ||
        is_drawn(size, of_classifiers.least, of_detectors.most)) {
        return 0;
    }
    return cmn_fail("width and height are %d and %d, and must be %d and %d, as the cfg says, or "
                    "a square of a multiple of 32 from %d to %d, as random=1 draws it",
                    size.width, size.height, now.width, now.height, of_classifiers.least,
                    of_detectors.most);
}

void cmn_net_resize_as_drawn(struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_range drawn = cmn_net_random_sizes(net);

    if (is_drawn(size, drawn.least, drawn.most)) {
        cmn_net_resize(net, size);
    }
}

int cmn_net_uses_adam(const struct cmn_net *net)
{
    return cmn_network(net)->adam;
}

int cmn_net_classifies(const struct cmn_net *net)
{
    const network *n = cmn_network(net);

    return n->truths == n->outputs && !n->hierarchy;
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

    return l->type == YOLO || l->type == REGION || l->type == DETECTION ? l->classes : -1;
}

int cmn_net_detects(const struct cmn_net *net)
{
    return cmn_net_box_classes(net, cmn_net_layers(net) - 1) > 0;
}

/* ---- progress of the training ---- */

size_t cmn_net_seen(const struct cmn_net *net)
{
    return *cmn_network(net)->seen;
}

void cmn_net_set_seen(struct cmn_net *net, size_t seen)
{
    *cmn_network(net)->seen = seen;
}

size_t cmn_net_iteration(const struct cmn_net *net)
{
    return get_current_batch(cmn_network(net));
}

int cmn_net_updates(const struct cmn_net *net)
{
    return *cmn_network(net)->t;
}

void cmn_net_set_updates(struct cmn_net *net, int updates)
{
    *cmn_network(net)->t = updates;
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

void cmn_net_draw_random_rate(struct cmn_net *net)
{
    if (cmn_network(net)->policy == RANDOM) {
        get_current_rate(cmn_network(net));
    }
}

/* ---- the micro-batch that was just computed ---- */

float cmn_net_loss(const struct cmn_net *net)
{
    return *cmn_network(net)->cost;
}

int cmn_net_count_right(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    int right = 0;

    for (int i = 0; i < n->batch && cmn_net_classifies(net); i++) {
        right += max_index(n->output + (size_t)i * (size_t)n->outputs, n->outputs) ==
                 max_index(n->truth + (size_t)i * (size_t)n->truths, n->truths);
    }
    return right;
}

float *cmn_net_save_batch(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    size_t inputs = cmn_net_inputs(net) * (size_t)n->batch;
    size_t truths = cmn_net_truths(net) * (size_t)n->batch;
    float *saved = cmn_malloc(inputs + truths, sizeof *saved);

    memcpy(saved, n->input, inputs * sizeof *saved);
    memcpy(saved + inputs, n->truth, truths * sizeof *saved);
    return saved;
}

void cmn_net_restore_batch(struct cmn_net *net, float *saved)
{
    network *n = cmn_network(net);
    size_t inputs = cmn_net_inputs(net) * (size_t)n->batch;
    size_t truths = cmn_net_truths(net) * (size_t)n->batch;

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
    write_weights(cmn_network(net), out, cmn_net_layers(net));
}
