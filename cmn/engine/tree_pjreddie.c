/* The functions of darknet_tree.h for pjreddie's Darknet. */
#include "base/memory.h"
#include "config/cfg_check.h"
#include "engine/darknet_tree.h"

#include <math.h>
#include <stddef.h>

const struct cmn_tree cmn_tree = {
    .whose = "pjreddie's",
    .has_all_hooks = 1,
    .keeps_batch = 1,
};

/* ---- the cfg ---- */

const char *cmn_tree_refusal(const network *net, char *const *words)
{
    (void)net;
    (void)words;
    return NULL;
}

network *cmn_tree_read(const char *cfg)
{
    return parse_network_cfg((char *)cfg);
}

void cmn_tree_free(network *net)
{
    free_network(net);
}

/* ---- the network ---- */

struct cmn_net_traits cmn_net_traits(const struct cmn_net *handle)
{
    const network *net = cmn_network(handle);
    const layer *last = &net->layers[net->n - 1];

    return (struct cmn_net_traits){
        .uses_adam = net->adam,
        .loss_scale = 1,
        .letterboxes = last->type != DETECTION,
        .loader_threads = last->type == YOLO || last->type == REGION ? 64 : net->threads,
        .lacks_weights = !net->whole_weights,
        .variance_less = 1,
    };
}

size_t cmn_net_inputs(const struct cmn_net *net)
{
    return (size_t)cmn_network(net)->inputs;
}

size_t cmn_net_truths(const struct cmn_net *net)
{
    return (size_t)cmn_network(net)->truths;
}

void cmn_net_set_batch(struct cmn_net *net, int n)
{
    set_batch_network(cmn_network(net), n);
}

void cmn_net_set_seen(struct cmn_net *net, size_t seen)
{
    *cmn_network(net)->seen = seen;
}

size_t cmn_net_iteration(const struct cmn_net *net)
{
    return get_current_batch(cmn_network(net));
}

void cmn_net_draw_random_rate(struct cmn_net *net)
{
    if (cmn_network(net)->policy == RANDOM) {
        get_current_rate(cmn_network(net));
    }
}

void cmn_tree_update_copy(network *copy, const network *net)
{
    (void)copy;
    (void)net;
}

/* These are the sizes that `detector train` and `classifier train` draw. */
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net)
{
    const layer *last = &net->layers[net->n - 1];

    if ((last->type == YOLO || last->type == REGION) && last->random) {
        return (struct cmn_tree_sizes){CMN_SMALLEST_DETECTOR, CMN_LARGEST_DETECTOR, 1};
    }
    if (net->random) {
        return (struct cmn_tree_sizes){CMN_SMALLEST_CLASSIFIER, CMN_LARGEST_CLASSIFIER, 1};
    }
    return (struct cmn_tree_sizes){0, 0, 1};
}

struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net)
{
    (void)net;
    return (struct cmn_tree_sizes){CMN_SMALLEST_CLASSIFIER, CMN_LARGEST_DETECTOR, 1};
}

float cmn_tree_loss(const network *net)
{
    return *net->cost;
}

float **cmn_tree_followed(network *net, int i, const char **name)
{
    (void)net;
    (void)i;
    (void)name;
    return NULL;
}

void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes)
{
    (void)net;
    (void)on_gpu;
    snprintf(text, bytes, "%s", "");
}

void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average)
{
    (void)average;
    write_weights(net, out, cutoff);
}

/* ---- layers ---- */

struct cmn_tree_layer cmn_tree_layer(const layer *l)
{
    return (struct cmn_tree_layer){
        .name = get_layer_string(l->type),
        .finds_boxes = l->type == YOLO || l->type == REGION || l->type == DETECTION,
        .updates = 1,
        .leaves_biases = l->type == BATCHNORM,
        .rate = &l->learning_rate_scale,
        .keeps = .99,
    };
}

struct cmn_tree_view cmn_tree_view(const layer *l)
{
    if (l->type == CONNECTED) {
        return (struct cmn_tree_view){
            .convolves = 1,
            .convolution = {1, 1, l->inputs, 1, l->batch, l->outputs, 1, l->batch, 1, 1, 1, 1, 0},
            .usual = l->delta != NULL,
        };
    }
    return (struct cmn_tree_view){
        .convolves = l->type == CONVOLUTIONAL && !l->binary && !l->xnor,
        .convolution = {l->batch, l->groups, l->c, l->h, l->w, l->n, l->out_h, l->out_w, l->size,
                        l->stride, l->stride, 1, l->pad},
        .usual = l->delta != NULL && !l->binary && !l->xnor,
        .alpha = l->alpha,
        .beta = l->beta,
        .samples = 1,
    };
}

float cmn_tree_deviation(float variance)
{
    return sqrtf(variance) + .000001F;
}

struct cmn_tree_instead cmn_tree_instead;

static void forward(layer l, network s)
{
    const struct cmn_tree_pass p = {s.index, s.input, s.delta, s.layers};

    if (!s.train || !cmn_tree_instead.forward(&l, &p)) {
        cmn_tree_instead.own(s.index)->forward(l, s);
    }
}

static void backward(layer l, network s)
{
    const struct cmn_tree_pass p = {s.index, s.input, s.delta, s.layers};

    if (!cmn_tree_instead.backward(&l, &p)) {
        cmn_tree_instead.own(s.index)->backward(l, s);
    }
}

const struct cmn_tree_functions cmn_tree_functions = {forward, backward};

int cmn_tree_detector(const network *net)
{
    return net->n - 1;
}

#ifdef GPU

void cmn_tree_gpu_batch(network *net, float ***input, float ***truth)
{
    *input = &net->input_gpu;
    *truth = &net->truth_gpu;
}

void cmn_tree_add_losses(network *net)
{
    calc_network_cost(net);
}

#endif

/* ---- images and predictions ---- */

/* Darknet's array of lines has no NULL at the end, so one is appended. */
char **cmn_read_names(const char *file, int *n)
{
    list *lines = get_paths((char *)file);
    char **names = (char **)list_to_array(lines);

    *n = lines->size;
    free_list(lines);
    names = cmn_realloc(names, (size_t)*n + 1, sizeof *names);
    names[*n] = NULL;
    return names;
}

image cmn_tree_crop_centre(image whole, int w, int h)
{
    return center_crop_image(whole, w, h);
}

void cmn_tree_predict(network *net, float *input, float *truth)
{
    network before = *net;

    net->input = input;
    net->truth = truth;
    net->train = 0;
    net->delta = NULL;
    forward_network(net);
    net->input = before.input;
    net->truth = before.truth;
    net->train = before.train;
    net->delta = before.delta;
}

/* Each forward pass copies the output to the host. */
void cmn_tree_fetch_output(const network *net)
{
    (void)net;
}

void cmn_tree_hierarchy(const network *net, float *out)
{
    hierarchy_predictions(out, net->outputs, net->hierarchy, 1, 1);
}

detection *cmn_tree_boxes(network *net, int w, int h, float score, float hierarchy, float nms,
                          int *n)
{
    detection *dets = get_network_boxes(net, w, h, score, hierarchy, NULL, 0, n);

    do_nms_sort(dets, *n, net->layers[net->n - 1].classes, nms);
    return dets;
}

const char *cmn_label_file(const char *image, char name[CMN_LABEL_FILE])
{
    /* The replacements are those of fill_truth_detection(). */
    static const char *const change[][2] = {
        {"images", "labels"}, {"JPEGImages", "labels"}, {"raw", "labels"}, {".jpg", ".txt"},
        {".png", ".txt"},     {".JPG", ".txt"},         {".JPEG", ".txt"}};

    find_replace((char *)image, (char *)change[0][0], (char *)change[0][1], name);
    for (size_t i = 1; i < sizeof change / sizeof change[0]; i++) {
        find_replace(name, (char *)change[i][0], (char *)change[i][1], name);
    }
    return cmn_label_name_ends(name) ? NULL
                                     : "the name leads to no label file: Darknet makes .txt of the "
                                       "first .jpg, .png, .JPG "
                                       "or .JPEG in it, which must be its end";
}
