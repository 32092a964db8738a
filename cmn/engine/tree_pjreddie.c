/* The functions of darknet_tree.h for pjreddie's Darknet. */
#include "engine/darknet_tree.h"

#include <string.h>

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

const char *cmn_tree_line_of(const kvp *pair, int *line)
{
    *line = pair->line;
    return pair->file;
}

network *cmn_tree_read(const char *cfg)
{
    return parse_network_cfg((char *)cfg);
}

void cmn_tree_free(network *net)
{
    free_network(net);
}

int cmn_tree_predicts_only(const network *net)
{
    (void)net;
    return 0;
}

/* ---- the network ---- */

int cmn_tree_wrote(int revision)
{
    return revision == 0;
}

const char *cmn_tree_layer_name(LAYER_TYPE type)
{
    return get_layer_string(type);
}

int cmn_tree_saves_biases(const layer *l)
{
    return l->type != BATCHNORM;
}

void cmn_tree_set_batch(network *net, int n)
{
    set_batch_network(net, n);
}

void cmn_tree_update_copy(network *copy, const network *net)
{
    (void)copy;
    (void)net;
}

size_t cmn_tree_inputs(const network *net)
{
    return (size_t)net->inputs;
}

size_t cmn_tree_truths(const network *net)
{
    return (size_t)net->truths;
}

/* These are the sizes that `detector train` and `classifier train` draw. */
struct cmn_tree_sizes cmn_tree_random_sizes(const network *net)
{
    const layer *last = &net->layers[net->n - 1];

    if ((last->type == YOLO || last->type == REGION) && last->random) {
        return (struct cmn_tree_sizes){SMALLEST_DETECTOR, LARGEST_DETECTOR, 1};
    }
    if (net->random) {
        return (struct cmn_tree_sizes){SMALLEST_CLASSIFIER, LARGEST_CLASSIFIER, 1};
    }
    return (struct cmn_tree_sizes){0, 0, 1};
}

struct cmn_tree_sizes cmn_tree_earlier_sizes(const network *net)
{
    (void)net;
    return (struct cmn_tree_sizes){SMALLEST_CLASSIFIER, LARGEST_DETECTOR, 1};
}

int cmn_tree_uses_adam(const network *net, int on_gpu)
{
    (void)on_gpu;
    return net->adam;
}

void cmn_tree_take_part(network *net, int micro_batches)
{
    (void)net;
    (void)micro_batches;
}

void cmn_tree_set_seen(network *net, size_t seen)
{
    *net->seen = seen;
}

size_t cmn_tree_iteration(const network *net)
{
    return get_current_batch((network *)net);
}

void cmn_tree_draw_rate(network *net)
{
    get_current_rate(net);
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

int cmn_tree_draws_images(const network *net)
{
    (void)net;
    return 0;
}

int cmn_tree_compares_images(const network *net)
{
    (void)net;
    return 0;
}

void cmn_tree_leaves_out(const network *net, int on_gpu, char *text, size_t bytes)
{
    (void)net;
    (void)on_gpu;
    snprintf(text, bytes, "%s", "");
}

int cmn_tree_loader_threads(const network *net)
{
    const layer *last = &net->layers[net->n - 1];

    return last->type == YOLO || last->type == REGION ? 64 : net->threads;
}

void cmn_tree_write_weights(network *net, FILE *out, int cutoff, int average)
{
    (void)average;
    write_weights(net, out, cutoff);
}

/* ---- layers ---- */

int cmn_tree_finds_boxes(const layer *l)
{
    return l->type == YOLO || l->type == REGION || l->type == DETECTION;
}

int cmn_tree_has_weights(const network *net)
{
    return net->whole_weights;
}

int cmn_tree_detector(const network *net)
{
    return net->n - 1;
}

int cmn_tree_updates(const layer *l)
{
    (void)l;
    return 1;
}

int cmn_tree_keeps_statistics(const layer *l)
{
    (void)l;
    return 0;
}

int cmn_tree_looks_back(const layer *l)
{
    return l->type == RNN || l->type == CRNN || l->type == GRU || l->type == LSTM;
}

int cmn_tree_keeps_outputs(const layer *l)
{
    (void)l;
    return 0;
}

int cmn_tree_is_lstm(const layer *l)
{
    return l->type == LSTM;
}

int cmn_tree_parts(const layer *l, struct cmn_tree_part part[CMN_TREE_PARTS])
{
    const struct cmn_tree_part gru[] = {{"uz.", l->uz}, {"wz.", l->wz}, {"ur.", l->ur},
                                        {"wr.", l->wr}, {"uh.", l->uh}, {"wh.", l->wh}};
    const struct cmn_tree_part gates[] = {{"uf.", l->uf}, {"ui.", l->ui}, {"ug.", l->ug},
                                          {"uo.", l->uo}, {"wf.", l->wf}, {"wi.", l->wi},
                                          {"wg.", l->wg}, {"wo.", l->wo}};

    if (l->type == GRU) {
        memcpy(part, gru, sizeof gru);
        return sizeof gru / sizeof gru[0];
    }
    if (l->type == LSTM) {
        memcpy(part, gates, sizeof gates);
        return sizeof gates / sizeof gates[0];
    }
    return 0;
}

size_t cmn_tree_plain_weights(const layer *l)
{
    (void)l;
    return 0;
}

int cmn_tree_averages(const network *net, layer *l, float **average[3])
{
    (void)net;
    (void)l;
    (void)average;
    return 0;
}

const float *cmn_tree_rate_scale(const layer *l)
{
    return &l->learning_rate_scale;
}

const char *cmn_tree_own_update(const network *net, int on_gpu)
{
    (void)net;
    (void)on_gpu;
    return NULL;
}

double cmn_tree_loss_scale(const network *net, int on_gpu)
{
    (void)net;
    (void)on_gpu;
    return 1;
}

double cmn_tree_rolling_keeps(const layer *l)
{
    (void)l;
    return .99;
}

double cmn_tree_variance_less(void)
{
    return 1;
}

#ifdef GPU

void cmn_tree_scale_on_gpu(float *x, size_t n, float factor)
{
    scal_gpu((int)n, factor, x, 1);
}

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

char **cmn_tree_names(const char *file, int *n)
{
    char **names = get_labels((char *)file);

    for (*n = 0; names[*n];) {
        ++*n;
    }
    return names;
}

unsigned char *cmn_tree_load_pixels(const char *path, int channels, int *w, int *h, int *c,
                                    const char **reason)
{
    return load_pixels(path, channels, w, h, c, reason);
}

image cmn_tree_crop_centre(image whole, int w, int h)
{
    return center_crop_image(whole, w, h);
}

int cmn_tree_letterboxes(const network *net)
{
    return net->layers[net->n - 1].type != DETECTION;
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

void cmn_tree_label_file(const char *image, char *name)
{
    /* The replacements are those of fill_truth_detection(). */
    static const char *const change[][2] = {
        {"images", "labels"}, {"JPEGImages", "labels"}, {"raw", "labels"}, {".jpg", ".txt"},
        {".png", ".txt"},     {".JPG", ".txt"},         {".JPEG", ".txt"}};

    find_replace((char *)image, (char *)change[0][0], (char *)change[0][1], name);
    for (size_t i = 1; i < sizeof change / sizeof change[0]; i++) {
        find_replace(name, (char *)change[i][0], (char *)change[i][1], name);
    }
}
