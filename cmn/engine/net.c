/* The handle of a network. */
#include "engine/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
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

void cmn_net_take_batch(struct cmn_net *net, const struct network *copy)
{
    cmn_network(net)->input = copy->input;
    cmn_network(net)->truth = copy->truth;
}

int cmn_net_predicts_only(const struct network *net)
{
#ifdef CMN_ALEXEYAB
    return !net->train;
#else
    (void)net;
    return 0;
#endif
}

const char *cmn_net_refusal(const struct network *net)
{
#ifdef CMN_ALEXEYAB
    const struct {
        int on;
        const char *why;
    } refused[] = {
        {net->track,
         "track=1 in the cfg: each rank would need sequences of its own: leave -cmn away"},
        {net->contrastive,
         "contrastive=1 in the cfg compares the images of a micro-batch with each "
         "other, and samples are loaded one by one: leave -cmn away"},
        {net->dynamic_minibatch,
         "dynamic_minibatch=1 in the cfg changes the size of a step on each "
         "rank: leave it away"},
        {net->badlabels_rejection_percentage > 0 || net->num_sigmas_reject_badlabels > 0 ||
             net->equidistant_point > 0,
         "badlabels_rejection_percentage, num_sigmas_reject_badlabels and equidistant_point in the "
         "cfg follow the deltas that one process has seen, and ranks see others: leave them away"},
        {net->weights_reject_freq > 0, "weights_reject_freq in the cfg changes weights that ranks "
                                       "have in common: leave it away"},
        {net->gaussian_noise > 0,
         "gaussian_noise in the cfg is drawn by OpenCV, whose random numbers "
         "do not follow cmn_seed: leave it away"},
        {net->adversarial_lr > 0,
         "adversarial_lr in the cfg changes images with a network of its own: "
         "leave it away"},
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].on) {
            return refused[i].why;
        }
    }
#else
    (void)net;
#endif
    return NULL;
}

/* AlexeyAB's Darknet writes 5, pjreddie's 0. */
static int is_of_this_tree(int revision)
{
#ifdef CMN_ALEXEYAB
    return revision != 0;
#else
    return revision == 0;
#endif
}

const char *cmn_net_weights_refusal(const struct network *net, int revision)
{
    static char why[256];

    for (int i = 0; i < net->n && !is_of_this_tree(revision); i++) {
        LAYER_TYPE type = net->layers[i].type;
        if (type == LSTM || type == GRU || type == BATCHNORM) {
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
    switch (layer_of(net, i)->type) { /* those that Darknet has no words for */
    case UPSAMPLE:
        return "upsample";
    case ISEG:
        return "iseg";
    case LOGXENT:
        return "logistic";
    case L2NORM:
        return "l2norm";
#ifdef CMN_ALEXEYAB
    case LOCAL_AVGPOOL:
        return "local_avgpool";
    case CONV_LSTM:
        return "conv_lstm";
    case HISTORY:
        return "history";
    case REORG_OLD:
        return "reorg_old";
    case EMPTY:
        return "empty";
    case CONTRASTIVE:
        return "contrastive";
    case IMPLICIT:
        return "implicit";
#endif
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
#ifdef CMN_ALEXEYAB
    /* set_batch_network() would free the workspace that the trainer's copy has, too. */
    cmn_network(net)->batch = n;
    for (int i = 0; i < cmn_net_layers(net); i++) {
        cmn_network(net)->layers[i].batch = n;
    }
#else
    set_batch_network(cmn_network(net), n);
#endif
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
#ifdef CMN_ALEXEYAB
    for (int i = cmn_net_layers(net) - 1; i >= 0; i--) {
        if (layer_of(net, i)->truths) {
            return (size_t)layer_of(net, i)->truths;
        }
    }
    return (size_t)cmn_network(net)->outputs;
#else
    return (size_t)cmn_network(net)->truths;
#endif
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

#ifdef CMN_ALEXEYAB

/* Both sides times or divided by `random`, 1.4 where that is 1; rounded up to resize_step. */
struct cmn_net_range cmn_net_random_sizes(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    double random = (double)layer_of(net, n->n - 1)->random, factor = random == 1 ? 1.4 : random;
    int less = n->w < n->h ? n->w : n->h, more = n->w < n->h ? n->h : n->w;

    if (layer_of(net, n->n - 1)->type != YOLO || factor <= 0) {
        return (struct cmn_net_range){0, 0};
    }
    return (struct cmn_net_range){(int)(less / factor), (int)(more * factor) + n->resize_step};
}

int cmn_net_check_size(const struct cmn_net *net, struct cmn_net_size size)
{
    struct cmn_net_size now = cmn_net_size(net);
    struct cmn_net_range drawn = cmn_net_random_sizes(net);

    if ((size.width == now.width && size.height == now.height) ||
        (size.width >= drawn.least && size.width <= drawn.most && size.height >= drawn.least &&
         size.height <= drawn.most)) {
        return 0;
    }
    return cmn_fail("width and height are %d and %d, and must be %d and %d, as the cfg says, or "
                    "from %d to %d, as random draws them",
                    size.width, size.height, now.width, now.height, drawn.least, drawn.most);
}

void cmn_net_resize_as_drawn(struct cmn_net *net, struct cmn_net_size size)
{
    if (!cmn_net_check_size(net, size)) {
        cmn_net_resize(net, size);
    }
}

#else

/* As detector train draws them, and classifier train. */
static const struct cmn_net_range of_detectors = {SMALLEST_DETECTOR, LARGEST_DETECTOR},
                                  of_classifiers = {SMALLEST_CLASSIFIER, LARGEST_CLASSIFIER};

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

#endif

int cmn_net_uses_adam(const struct cmn_net *net)
{
#ifdef CMN_ALEXEYAB
    return cmn_network(net)->adam && cmn_net_on_gpu(net); /* its update on the CPU is SGD's */
#else
    return cmn_network(net)->adam;
#endif
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

#ifdef CMN_ALEXEYAB
    if (l->type == GAUSSIAN_YOLO) {
        return l->classes;
    }
#endif
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
#ifdef CMN_ALEXEYAB
    *cmn_network(net)->cur_iteration = (int)cmn_net_iteration(net);
#endif
}

size_t cmn_net_iteration(const struct cmn_net *net)
{
    return (size_t)get_current_batch(CMN_NETWORK(cmn_network(net)));
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

void cmn_net_draw_random_rate(struct cmn_net *net)
{
    if (cmn_network(net)->policy == RANDOM) {
        get_current_rate(CMN_NETWORK(cmn_network(net)));
    }
}

/* ---- the micro-batch that was just computed ---- */

float cmn_net_loss(const struct cmn_net *net)
{
#ifdef CMN_ALEXEYAB
    return get_network_cost(*cmn_network(net));
#else
    return *cmn_network(net)->cost;
#endif
}

int cmn_net_count_right(const struct cmn_net *net)
{
    const network *n = cmn_network(net);
    size_t each = (size_t)n->outputs;
    int right = 0;

    for (size_t i = 0; i < (size_t)n->batch && cmn_net_classifies(net); i++) {
        right += max_index(n->output + i * each, n->outputs) ==
                 max_index(n->truth + i * each, n->outputs);
    }
    return right;
}

#ifdef CMN_ALEXEYAB

/* Each step has memory of its own for them. */
float *cmn_net_save_batch(const struct cmn_net *net)
{
    (void)net;
    return NULL;
}

void cmn_net_restore_batch(struct cmn_net *net, float *saved)
{
    (void)net;
    (void)saved;
}

#else

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

#endif

/* ---- files ---- */

void cmn_net_name(const char *cfg, char *name, size_t bytes)
{
    char *base = basecfg((char *)cfg);

    snprintf(name, bytes, "%s", base);
    free(base);
}

void cmn_net_write_weights(struct cmn_net *net, FILE *out)
{
#ifdef CMN_ALEXEYAB
    write_weights(*cmn_network(net), out, cmn_net_layers(net), 0);
#else
    write_weights(cmn_network(net), out, cmn_net_layers(net));
#endif
}
