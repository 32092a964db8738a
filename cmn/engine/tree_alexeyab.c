/* The functions of darknet_tree.h for AlexeyAB's Darknet. Its functions take networks by value;
 * copies share their layers. */
#include "engine/darknet_tree.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "convolutional_layer.h"

#include "base/log.h"
#include "base/memory.h"

const struct cmn_tree cmn_tree = {
    .whose = "AlexeyAB's",
    .has_more = 1,
    .numbers_revisions = 1, /* it writes 5 */
    .convolution_overwrites = 1,
};

/* ---- the cfg ---- */

static int has_word(char *const *words, const char *word)
{
    while (words && *words && strcmp(*words, word)) {
        words++;
    }
    return words && *words;
}

/* Returns whether a layer, of those that are read already, uses a stream that the exchange would
 * not wait for. */
static int has_streams(const network *net)
{
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        if ((l->type == CONVOLUTIONAL || l->type == ROUTE) && l->output &&
            (l->stream >= 0 || l->wait_stream_id >= 0)) {
            return 1;
        }
    }
    return 0;
}

/* Returns the first option that this Darknet's classifier and detector do not know, or NULL. It would
 * take it for the file of weights. */
static const char *unknown_option(char *const *words, const char **nearest)
{
    static const char *const known[] = {"-avgframes",
                                        "-benchmark",
                                        "-benchmark_layers",
                                        "-c",
                                        "-chart",
                                        "-clear",
                                        "-cuda_debug_sync",
                                        "-dont_show",
                                        "-dontdraw_bbox",
                                        "-dontuse_opencv",
                                        "-ext_output",
                                        "-gpus",
                                        "-height",
                                        "-hier",
                                        "-http_post_host",
                                        "-i",
                                        "-iou_thresh",
                                        "-json_file_output",
                                        "-json_port",
                                        "-letter_box",
                                        "-mAP_epochs",
                                        "-map",
                                        "-mjpeg_port",
                                        "-nogpu",
                                        "-num_of_clusters",
                                        "-out",
                                        "-out_filename",
                                        "-points",
                                        "-prefix",
                                        "-s",
                                        "-save_labels",
                                        "-show",
                                        "-show_imgs",
                                        "-t",
                                        "-thresh",
                                        "-time_limit_sec",
                                        "-topk",
                                        "-width"};
    enum { KNOWN = sizeof known / sizeof known[0] };

    for (; words && *words; words++) {
        int i = 0;
        while (i < KNOWN && strcmp(known[i], *words) != 0) {
            i++;
        }
        if (i == KNOWN && (*words)[0] == '-' && !strchr(".0123456789", (*words)[1])) {
            *nearest = cmn_nearest(*words, known, KNOWN);
            return *words;
        }
    }
    return NULL;
}

/* What does not work with -cmn, and that no line of the cfg tells by itself: those are in
 * config/refused_layers.c. docs/use/alexeyab.md has the same rows. */
const char *cmn_tree_refusal(const network *net, char *const *words)
{
    static const network none;
    static char text[512];
    const network *n = net ? net : &none;
    int on_gpu = cmn_device_built() && gpu_index >= 0;
    const char *nearest, *unknown = net ? NULL : unknown_option(words, &nearest);
    const struct {
        const char *key; /* key of the cfg, option, or command */
        int on;
        const char *why;
    } refused[] = {
        {"contrastive", n->contrastive && n->batch % 2,
         "it compares images in pairs: batch divided by subdivisions must be even"},
        {"[batchnorm] as the first layer", n->n > 0 && n->layers[0].type == BATCHNORM,
         "this Darknet writes the images' gradient to no memory there: begin with another layer"},
        {"use_cuda_graph", on_gpu && n->use_cuda_graph,
         "it records the first prediction, and a training's predictions differ: remove it"},
        {"stream", on_gpu && has_streams(n),
         "the sum over the ranks waits for one stream: remove stream and wait_stream"},
        {"-topk", has_word(words, "classifier") && has_word(words, "-topk"),
         "with -cmn the answers are counted with cmn_validate: remove -topk"},
    };

    if (unknown) {
        snprintf(text, sizeof text, "unknown option %s%s%s%s", unknown,
                 nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
        return text;
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].on) {
            snprintf(text, sizeof text, "%s%s: %s", refused[i].key,
                     refused[i].key[0] == '-' || strchr(refused[i].key, ' ') ? "" : " in the cfg",
                     refused[i].why);
            return text;
        }
    }
    return NULL;
}

network *cmn_tree_read(const char *cfg)
{
    network *net = cmn_malloc(1, sizeof *net);

    *net = parse_network_cfg((char *)cfg);
    return net;
}

void cmn_tree_free(network *net)
{
    free_network(*net);
    free(net);
}

/* ---- the network ---- */

/* Returns the key that makes the update of a layer on a GPU do more than momentum and weight decay,
 * or NULL. */
static const char *own_update_of(const layer *l)
{
    return l->burnin_update                      ? "burnin_update"
           : l->dont_update                      ? "dont_update"
           : l->train_only_bn                    ? "train_only_bn"
           : l->grad_centr && l->batch_normalize ? "grad_centr"
           : l->deform                           ? "deform"
           : l->reverse                          ? "reverse"
           : l->type == IMPLICIT && l->clip > 0  ? "clip"
           : l->type == SHORTCUT && l->nweights  ? "weights_type"
                                                 : NULL;
}

static const char *own_update(const network *net, int on_gpu)
{
    const char *key = NULL;

    if (!on_gpu) {
        return NULL;
    }
    if (net->adam) {
        return "adam=1"; /* Adam only for convolutions, with a count of updates per layer */
    }
    for (int i = 0; i < net->n && !key; i++) {
        key = own_update_of(&net->layers[i]);
    }
    return net->loss_scale != 1 ? "loss_scale" : key;
}

struct cmn_net_traits cmn_net_traits(const struct cmn_net *handle)
{
    const network *net = cmn_network(handle);
    LAYER_TYPE last = net->n > 0 ? net->layers[net->n - 1].type : BLANK;
    int on_gpu = cmn_net_on_gpu(handle);
    int rejects = net->badlabels_rejection_percentage > 0 || net->num_sigmas_reject_badlabels > 0 ||
                  net->equidistant_point > 0;

    return (struct cmn_net_traits){
        .uses_adam = net->adam && on_gpu, /* on the CPU the update is always SGD's */
        .own_update = own_update(net, on_gpu),
        .loss_scale = on_gpu ? (double)net->loss_scale : 1,
        .follows = rejects ? "badlabels_rejection_percentage, num_sigmas_reject_badlabels or "
                             "equidistant_point"
                           : NULL,
        .averages = net->ema_alpha > 0,
        .compares_images = net->contrastive,
        .draws_images = net->mixup,
        .letterboxes = net->letter_box,
        .loader_threads = last == YOLO || last == REGION ? 64 : 32,
        .predicts_only = !net->train,
        .variance_less = gpu_index < 0, /* the kernels for GPUs divide by the count */
    };
}

/* A resize does not change net->inputs. */
size_t cmn_net_inputs(const struct cmn_net *handle)
{
    const network *net = cmn_network(handle);
    size_t image = (size_t)net->w * (size_t)net->h * (size_t)net->c;

    return image ? image : (size_t)net->inputs;
}

size_t cmn_net_truths(const struct cmn_net *handle)
{
    const network *net = cmn_network(handle);

    for (int i = net->n - 1; i >= 0; i--) {
        if (net->layers[i].truths) {
            return (size_t)net->layers[i].truths;
        }
    }
    return (size_t)net->outputs;
}

/* set_batch_network() would free the workspace, which the trainer's copy uses, too. */
void cmn_net_set_batch(struct cmn_net *handle, int n)
{
    network *net = cmn_network(handle);

    net->batch = n;
    for (int i = 0; i < net->n; i++) {
        net->layers[i].batch = n;
    }
}

void cmn_net_set_seen(struct cmn_net *handle, size_t seen)
{
    network *net = cmn_network(handle);

    *net->seen = seen;
    *net->cur_iteration = get_current_batch(*net);
}

size_t cmn_net_iteration(const struct cmn_net *net)
{
    return (size_t)get_current_batch(*cmn_network(net));
}

void cmn_net_draw_random_rate(struct cmn_net *net)
{
    if (cmn_network(net)->policy == RANDOM) {
        get_current_rate(*cmn_network(net));
    }
}

void cmn_tree_update_copy(network *copy, const network *net)
{
    copy->workspace = net->workspace;
}

/* Both sides are multiplied or divided by `random` of the last layer that finds boxes (by 1.4 if it
 * is 1), then resize_step is added and they are rounded to multiples of it. */
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net)
{
    const layer *last = &net->layers[cmn_tree_detector(net)];
    double random = 0, factor;
    int less = net->w < net->h ? net->w : net->h, more = net->w < net->h ? net->h : net->w;

    if (last->type == YOLO || last->type == GAUSSIAN_YOLO || last->type == REGION) {
        random = (double)last->random;
    }
    factor = random == 1 ? 1.4 : random;
    if (factor <= 0) {
        return (struct cmn_tree_sizes){0, 0, 0};
    }
    return (struct cmn_tree_sizes){(int)(less / factor),
                                   (int)(more * factor + 1.5 * net->resize_step), 0};
}

struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net)
{
    return cmn_tree_random_sizes(net);
}

float cmn_tree_loss(const network *net)
{
    return get_network_cost(*net);
}

float **cmn_tree_followed(network *net, int i, const char **name)
{
    static const char *const names[] = {"delta_rolling_max", "delta_rolling_avg",
                                        "delta_rolling_std", "badlabels_reject_threshold"};
    float **const value[] = {&net->delta_rolling_max, &net->delta_rolling_avg,
                             &net->delta_rolling_std, &net->badlabels_reject_threshold};

    if (!cmn_net_traits(cmn_net_of(net)).follows || i == sizeof value / sizeof value[0]) {
        return NULL;
    }
    *name = names[i];
    return value[i];
}

/* Appends `words`, after ", " if there is text before. */
static void add_word(char *text, size_t bytes, const char *words)
{
    size_t n = strlen(text);

    snprintf(text + n, bytes - n, "%s%s", n ? ", " : "", words);
}

/* Lists the keys of the layers and of [net] that only the code for GPUs reads. */
static void list_keys(const network *net, char *text, size_t bytes)
{
    struct {
        const char *key;
        int on;
    } keys[] = {{"adam=1", net->adam}, {"batch_normalize=2", 0}, {"burnin_update", 0},
                {"train_only_bn", 0},  {"dont_update", 0},       {"clip", 0}};

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        keys[1].on |= l->batch_normalize > 1;
        keys[2].on |= l->burnin_update != 0;
        keys[3].on |= l->train_only_bn != 0;
        keys[4].on |= l->dont_update != 0;
        keys[5].on |= l->clip != 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i].on) {
            add_word(text, bytes, keys[i].key);
        }
    }
}

void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!on_gpu) {
        list_keys(net, text, bytes);
    }
}

void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average)
{
    write_weights(*net, out, cutoff, average);
}

/* ---- layers ---- */

static const char *name_of(LAYER_TYPE type)
{
    switch (type) {
    case LOCAL_AVGPOOL:
        return "local_avgpool";
    case REORG_OLD: /* cfgs call it so */
        return "reorg";
    case REORG:
        return "reorg3d";
    case EMPTY:
        return "empty";
    case CONTRASTIVE:
        return "contrastive";
    case IMPLICIT:
        return "implicit";
    default:
        return get_layer_string(type);
    }
}

struct cmn_tree_layer cmn_tree_layer(const layer *l)
{
    static const float none = 1;
    int plain = l->type == SHORTCUT || l->type == IMPLICIT;
    int has_rate = plain || l->type == CONVOLUTIONAL ||
                   (gpu_index >= 0 && (l->type == CONNECTED || l->type == BATCHNORM));

    return (struct cmn_tree_layer){
        .name = name_of(l->type),
        .finds_boxes = l->type == YOLO || l->type == GAUSSIAN_YOLO || l->type == REGION ||
                       l->type == DETECTION,
        .updates = l->train || !l->onlyforward, /* layers before stopbackward=1 are not updated */
        .frozen = l->type == CONVOLUTIONAL && !l->train,
        .weights = plain ? (size_t)l->nweights : 0,
        .rate = has_rate ? &l->learning_rate_scale : &none,
        .keeps = gpu_index >= 0         ? .99
                 : l->type == CONNECTED ? (double).95F
                                        : .9,
        .averages = {(float **)&l->weights_ema, (float **)&l->biases_ema, (float **)&l->scales_ema},
    };
}

/* Returns whether im2col_cpu_ext() cuts a convolution's windows as oneDNN does. */
static int has_usual_windows(const layer *l)
{
    int window = l->dilation * (l->size - 1) + 1 - 2 * l->pad * l->dilation;

    return l->type == CONVOLUTIONAL && (l->size > 1 || !l->pad) &&
           l->out_h == (l->h - window) / l->stride_y + 1 &&
           l->out_w == (l->w - window) / l->stride_x + 1;
}

struct cmn_tree_view cmn_tree_view(const layer *l)
{
    int convolves = !l->binary && !l->xnor && has_usual_windows(l);

    if (l->type == CONNECTED) {
        return (struct cmn_tree_view){
            .convolves = 1,
            .convolution = {1, 1, l->inputs, 1, l->batch, l->outputs, 1, l->batch, 1, 1, 1, 1, 0},
            .usual = l->delta && l->train,
        };
    }
    return (struct cmn_tree_view){
        .convolves = convolves,
        .convolution = {l->batch, l->groups, l->c, l->h, l->w, l->n, l->out_h, l->out_w, l->size,
                        l->stride_y, l->stride_x, l->dilation, l->pad * l->dilation},
        .usual = l->delta && l->train && !l->antialiasing && !l->assisted_excitation &&
                 !l->maxpool_depth && !l->dropblock && l->batch_normalize < 2 &&
                 (l->type != CONVOLUTIONAL || convolves) && (l->type != ROUTE || l->groups == 1) &&
                 (l->type != SHORTCUT || (l->n == 1 && l->nweights == 0)),
        .alpha = 1,
        .beta = 1,
        .leaves_biases = l->type == CONVOLUTIONAL && l->batch_normalize,
    };
}

float cmn_tree_deviation(float variance)
{
    return sqrtf(variance + .00001F);
}

struct cmn_tree_instead cmn_tree_instead;

static void forward(layer l, network_state s)
{
    const struct cmn_tree_pass p = {s.index, s.input, s.delta, s.net.layers};

    if (!s.train || !cmn_tree_instead.forward(&l, &p)) {
        cmn_tree_instead.own(s.index)->forward(l, s);
    }
}

static void backward(layer l, network_state s)
{
    const struct cmn_tree_pass p = {s.index, s.input, s.delta, s.net.layers};

    if (!cmn_tree_instead.backward(&l, &p)) {
        cmn_tree_instead.own(s.index)->backward(l, s);
    }
}

const struct cmn_tree_functions cmn_tree_functions = {forward, backward};

/* A contrastive layer may follow the layer that finds boxes. */
int cmn_tree_detector(const network *net)
{
    int i = net->n - 1;

    while (i > 0 && !cmn_tree_layer(&net->layers[i]).finds_boxes) {
        i--;
    }
    return i;
}

#ifdef GPU

void cmn_tree_gpu_batch(network *net, float ***input, float ***truth)
{
    *input = net->input_gpu;
    *truth = net->truth_gpu;
}

void cmn_tree_add_losses(network *net)
{
    (void)net;
}

#endif

/* ---- images and predictions ---- */

/* Darknet's array has no NULL at the end, so one is appended. */
char **cmn_read_names(const char *file, int *n)
{
    char **names = get_labels_custom((char *)file, n);

    names = cmn_realloc(names, (size_t)*n + 1, sizeof *names);
    names[*n] = NULL;
    return names;
}

/* Does the same as Darknet's validate_classifier_single(). */
image cmn_tree_crop_centre(image whole, int w, int h)
{
    image resized = resize_min(whole, w);
    image middle = crop_image(resized, (resized.w - w) / 2, (resized.h - h) / 2, w, h);

    if (resized.data != whole.data) {
        free_image(resized);
    }
    return middle;
}

#ifdef GPU

#ifdef CUDNN_HALF

/* Converts the weights to 16 bits, because they have changed since the training did so before its
 * last micro-batch. */
static void halve_weights(const network *net)
{
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        if (l->type == CONVOLUTIONAL && l->weights_gpu16) {
            cuda_convert_f32_to_f16(l->weights_gpu, (size_t)l->nweights, l->weights_gpu16);
        }
    }
}

#endif

static void predict_on_gpu(network *net, float *input, float *truth)
{
    size_t inputs = (size_t)net->inputs * (size_t)net->batch;
    size_t truths = cmn_net_truths(cmn_net_of(net)) * (size_t)net->batch;
    network_state state = {.input = net->input_state_gpu, .net = *net};
    float *labels = truth ? cuda_make_array(truth, truths) : NULL;

    state.truth = labels;
#ifdef CUDNN_HALF
    halve_weights(net);
#endif
    cuda_push_array(state.input, input, inputs);
    forward_network_gpu(*net, state);
    cmn_tree_fetch_output(net);
    if (labels) {
        cuda_free(labels);
    }
}

#endif

void cmn_tree_predict(network *net, float *input, float *truth)
{
    network_state state = {.input = input, .truth = truth, .net = *net};

#ifdef GPU
    if (gpu_index >= 0) {
        predict_on_gpu(net, input, truth);
        return;
    }
#endif
    forward_network(*net, state);
}

void cmn_tree_fetch_output(const network *net)
{
#ifdef GPU
    get_network_output(*net);
#else
    (void)net;
#endif
}

void cmn_tree_hierarchy(const network *net, float *out)
{
    hierarchy_predictions(out, net->outputs, net->hierarchy, 1);
}

detection *cmn_tree_boxes(network *net, int w, int h, float score, float hierarchy, float nms,
                          int *n)
{
    const layer *last = &net->layers[cmn_tree_detector(net)];
    detection *dets = get_network_boxes(net, w, h, score, hierarchy, NULL, 0, n, net->letter_box);

    if (last->nms_kind == DEFAULT_NMS) {
        do_nms_sort(dets, *n, last->classes, nms);
    } else {
        diounms_sort(dets, *n, last->classes, nms, last->nms_kind, last->beta_nms);
    }
    return dets;
}

const char *cmn_label_file(const char *image, char name[CMN_LABEL_FILE])
{
    replace_image_to_label(image, name);
    return cmn_label_name_ends(name)
               ? NULL
               : "the name leads to no label file: names of images end with .jpg, .jpeg, .png, "
                 ".bmp, .ppm or .tiff, in small or in capital letters";
}
