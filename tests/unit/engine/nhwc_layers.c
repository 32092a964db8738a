/* A training's layers on images in NHWC against the same layers by Darknet: outputs, the gradients of
 * all that is learned and of the input, rolling statistics. In floats, and in bf16: once with small
 * whole numbers, which bf16 holds exactly: the same results to the bit. Once with batch normalisation
 * and random numbers: rounding to bf16, and what then falls to the other side of an activation's
 * kink, leaves some percent of a gradient's size. */
#include <cblas.h>

#include "engine/nhwc_layers.h"
#include "engine/convolution.h"

#include "engine/darknet_tree.h"
#include "layers.h"

#include <math.h>

#define PICTURES "batch=4\nheight=14\nwidth=14\nchannels=3\n"

/* Nets, a word for each layer: c16.3 is a convolution of 16 filters of size 3 with the activation,
 * and the batch normalisation, of the round; l: linear; e: with an activation that is not computed in
 * NHWC; g: in two groups. The other words are those of `sections`. */
static const struct {
    const char *text;
    const char *kept; /* the layers whose outputs stay in NHWC */
} nets[] = {
    {"c20.3 c17.1 l5.3", "110"},
    {"c20.3 l70.3 c4.1", "110"},
    {"c16.3 c63.1 c8.1 l4.3", "1110"}, /* oneDNN 2.6.3 cannot add 63 products by AMX */
    {"c16.3 pool c24.3 pool_by_one c8.3 pool_of_three l3.1", "1111110"},
    {"c16.3 c16.3 pool connected", "1000"},
    {"c16.3 dense dense_normal connected", "0110"},
    {"c16.3 c16.3 shortcut c16.3 weighted l3.1", "111110"},
    {"c16.3 shortcut_of_itself l3.1", "110"},
    {"c16.3 c8.3 shortcut l3.1", "1110"}, /* one has more channels */
    {"c8.3 c16.3 shortcut shortcut l3.1", "11110"},
#ifndef NETWORKS_BY_VALUE /* AlexeyAB's shortcuts take no heed of rows and columns */
    {"c16.3 pool c24.3 shortcut_of_third c8.3 l3.1", "111110"},
    {"c16.3 pool c24.3 upsample shortcut_of_third l3.1", "111110"},
#endif
    {"c16.3 c16.3 shortcut avgpool l3.1", "11110"},
    {"c16.3 c9.3 route_two c24.3 route_back c24.3 route_third l9.1", "11111110"},
    {"c16.3 pool c16.3 upsample route_far pool c5.1 route_sizes l9.1", "111111110"},
    {"c64.14 dropout l64.1 dropout route_all l64.1", "111110"},
    {"c16.3 c16.3 avgpool route_back l3.3", "11110"}, /* what is averaged has another reader */
    {"c16.3 e16.3 l3.3", "000"},
    {"c32.3 g32.3 l3.3", "110"},
    {"c16.3 c8.3 route_back l5.3", "1110"}, /* layer 1 is read by none */
};

static const struct {
    const char *word, *section;
} sections[] = {
    {"pool", "[maxpool]\nsize=2\nstride=2\n"},
    {"pool_by_one", "[maxpool]\nsize=2\nstride=1\n"},
    {"pool_of_three", "[maxpool]\nsize=3\nstride=2\npadding=2\n"},
    {"connected", "[connected]\noutput=9\nactivation=linear\n"},
    {"dense", "[connected]\noutput=70\nactivation=relu\n"},
    {"dense_normal", "[connected]\noutput=33\nbatch_normalize=1\nactivation=leaky\n"},
    {"shortcut", "[shortcut]\nfrom=-2\nactivation=relu\n"},
    {"weighted", "[shortcut]\nfrom=-2\nactivation=linear\nalpha=0.5\nbeta=2\n"},
    {"shortcut_of_itself", "[shortcut]\nfrom=-1\nactivation=linear\n"},
    {"route_two", "[route]\nlayers=-1,-2\n"},
    {"route_third", "[route]\nlayers=-1,-3\n"},
    {"route_sizes", "[route]\nlayers=-1,2\n"},
    {"route_back", "[route]\nlayers=-2\n"},
    {"route_far", "[route]\nlayers=-1,-4\n"},
    {"route_all", "[route]\nlayers=1,3\n"},
    {"upsample", "[upsample]\nstride=2\nscale=2\n"},
    {"dropout", "[dropout]\nprobability=.5\n"},
    {"avgpool", "[avgpool]\n"},
    {"shortcut_of_third", "[shortcut]\nfrom=-3\nactivation=relu\n"},
};

static void add_layer(char *cfg, const char *word, int normal)
{
    char *end = cfg + strlen(cfg);
    int filters, size;
    char kind;

    for (size_t i = 0; i < COUNT(sections); i++) {
        if (!strcmp(sections[i].word, word)) {
            strcat(cfg, sections[i].section);
            return;
        }
    }
    assert_int_equal(sscanf(word, "%c%d.%d", &kind, &filters, &size), 3);
    /* A convolution of the whole image leaves single pixels, of which both orders of dropout draw
     * the same numbers. */
    sprintf(end, "[convolutional]\nfilters=%d\nsize=%d\nstride=1\n%s%sactivation=%s\n", filters,
            size, size < 14 ? "pad=1\n" : "", kind == 'g' ? "groups=2\n" : "",
            kind == 'l'   ? "linear"
            : kind == 'e' ? "elu"
            : normal      ? "leaky\nbatch_normalize=1"
                          : "relu");
}

static char *cfg_of(const char *text, int normal)
{
    static char cfg[2048];
    char words[256], *word = words, *next;

    cfg[0] = 0;
    snprintf(words, sizeof words, "%s", text);
    for (; word; word = next) {
        next = strchr(word, ' ');
        if (next) {
            *next++ = 0;
        }
        add_layer(cfg, word, normal);
    }
    return cfg;
}

static int wrong; /* what has been found so far in a test, so that it names all */
static int asked[3];

static void statistics(void *self, float *mean, float *variance, int n, int count)
{
    (void)self;
    (void)mean;
    (void)variance;
    asked[0] += n * count;
}

static void deltas(void *self, float *mean, float *variance, int n, int count)
{
    (void)self;
    (void)mean;
    (void)variance;
    asked[1] += n * count;
}

static void progress(void *self)
{
    (void)self;
    asked[2]++;
}

static const struct cmn_nhwc_trainer trainer = {NULL, statistics, deltas, progress};

/* All that a pass computes: the network's output, the gradient of the input, then each tensor. */
static float *results(struct rig *r, size_t *n)
{
    size_t flat = r->outputs + r->inputs, rest = flat + r->g.exchange.block.n;
    float *all;

    *n = rest + cmn_gradients_floats(&r->g, CMN_STATISTIC);
    all = calloc(*n, sizeof *all);
    for (int i = 0; i < r->net->n; i++) { /* AlexeyAB's tree leaves what some layers have */
        const layer *l = &r->net->layers[i];
        memset(l->delta, 0, (size_t)l->outputs * (size_t)l->batch * sizeof *l->delta);
    }
    backward(r);
    memcpy(all, last(r)->output, r->outputs * sizeof *all);
    memcpy(all + r->outputs, r->net->delta, r->inputs * sizeof *all);
    memcpy(all + flat, r->g.flat, (rest - flat) * sizeof *all);
    cmn_gradients_pack(&r->g, CMN_STATISTIC, all + rest);
    return all;
}

/* `most`: what may be apart, of a tensor's size. */
static void compare(const struct rig *r, const char *what, double most, const float *x,
                    const float *y, size_t n)
{
    double apart = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        apart += pow((double)x[i] - (double)y[i], 2);
        size += pow((double)y[i], 2);
    }
    /* The gradient of a bias before batch normalisation is 0, apart from rounding. */
    if (!(sqrt(apart) <= most * (sqrt(size) + 0.5))) {
        print_error("# %s, %s: %s: %.2g apart, of a size of %.2g\n", r->name,
                    most > 0 ? "normal" : "whole", what, sqrt(apart), sqrt(size));
        wrong++;
    }
}

/* Rolling statistics begin with something that a pass keeps a part of. */
static void set_statistics(struct rig *r)
{
    for (int i = 0; i < r->g.tensors; i++) {
        if (r->g.tensor[i].kind == CMN_STATISTIC) {
            for (size_t k = 0; k < r->g.tensor[i].n; k++) {
                (*r->g.tensor[i].at)[k] = 10;
            }
        }
    }
}

static int in_bf16;

/* The sum of a layer's outputs, in whichever order and kind they are. */
static double sum_of(const struct rig *r, int i)
{
    const layer *l = &r->net->layers[i];
    float *copy = cmn_nhwc_layers_decode(cmn_net_of(r->net), i);
    const float *output = copy ? copy : l->output;
    double sum = 0;

    for (int k = 0; k < l->outputs * l->batch; k++) {
        sum += (double)output[k];
    }
    free(copy);
    return sum;
}

static double sums[32]; /* of each layer's outputs, by Darknet */

static float *results_in_nhwc(struct rig *r, const char *kept, int whole)
{
    float *x;
    size_t n;

    cmn_nhwc_layers_open(cmn_net_of(r->net), in_bf16, &trainer);
    for (int i = 0; i < r->net->n; i++) {
        int is = cmn_nhwc_layers_overwrite(cmn_net_of(r->net), i);
        /* In AlexeyAB's tree some layers are not trained in the way of others. */
        if (!cmn_tree.has_more && is != (kept[i] == '1')) {
            print_error("# %s: layer %d is %skept in NHWC\n", r->name, i, is ? "" : "not ");
            wrong++;
        }
    }
    free(results(r, &n)); /* the second pass finds what the first one left */
    set_statistics(r);
    x = results(r, &n);
    for (int i = 0; i < r->net->n && whole && !strstr(r->name, "dropout"); i++) {
        if (sum_of(r, i) != sums[i]) {
            print_error("# %s: layer %d: other outputs\n", r->name, i);
            wrong++;
        }
    }
    cmn_nhwc_layers_close();
    return x;
}

static void compare_all(struct rig *r, const char *kept, double most)
{
    size_t n, flat = r->outputs + r->inputs, at = flat + r->g.exchange.block.n;
    float *x, *y;

    set_statistics(r);
    y = results(r, &n);
    for (int i = 0; i < r->net->n; i++) {
        sums[i] = sum_of(r, i);
    }
    x = results_in_nhwc(r, kept, most <= 0);
    compare(r, "output", most, x, y, r->outputs);
    for (size_t i = r->outputs; i < flat; i++) {
        x[i] -= ADDED;
        y[i] -= ADDED;
    }
    compare(r, "gradient of the input", most, x + r->outputs, y + r->outputs, r->inputs);
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        char name[64];
        snprintf(name, sizeof name, "layer %d %s", t->layer, t->name);
        if (t->kind == CMN_GRADIENT) {
            size_t from = flat + (size_t)(*t->at - r->g.flat);
            compare(r, name, most, x + from, y + from, t->n);
        } else if (t->kind == CMN_STATISTIC) {
            compare(r, name, most / (in_bf16 ? 50 : 1), x + at, y + at, t->n);
            at += t->n;
        }
    }
    free(x);
    free(y);
}

/* Most are 0, so that no sum is larger than 256, up to which bf16 holds all whole numbers. */
static void fill_with_whole(float *x, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) {
        float u = uniform(0, 1);
        x[i] = u < share / 2 ? -1 : u < share ? 1 : 0;
    }
}

static void make_whole(struct rig *r)
{
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        if (t->kind == CMN_WEIGHT) {
            fill_with_whole(*t->at, t->n, 1 / 12.F);
        }
    }
    fill_with_whole(r->input, r->inputs, 1 / 12.F);
    fill_with_whole(r->pull, r->outputs, 2 / 3.F);
}

/* Returns what may be apart of a tensor's size. elu, averages and batch normalisation make fractions of
 * whole numbers. */
static double most_of(int normal, const char *net)
{
    if (!normal && !strstr(net, " e16") && !strstr(net, "dense_normal") &&
        !strstr(net, "avgpool")) {
        return 0;
    }
    return !in_bf16 ? 1e-4 : normal ? 0.25 : 0.1;
}

static void train_all(int normal)
{
    openblas_set_num_threads(1);
    if (in_bf16 ? !cmn_convolution_use_bf16(1) : !cmn_convolution_kernels()[0]) {
        skip();
    }
    cmn_convolution_use(1);
    wrong = 0;
    for (size_t i = 0; i < COUNT(nets); i++) {
        struct rig r;
        open_rig(&r, nets[i].text, PICTURES, cfg_of(nets[i].text, normal));
        if (!normal) {
            make_whole(&r);
        }
        compare_all(&r, nets[i].kept, most_of(normal, nets[i].text));
        close_rig(&r);
    }
    assert_int_equal(wrong, 0);
}

static void train_both(void)
{
    train_all(0);
    memset(asked, 0, sizeof asked);
    train_all(1);
    assert_true(asked[0] > 0 && asked[0] == asked[1] && asked[2] > 0);
}

TEST(floats)
{
    train_both();
}

/* The last one: it stays in use. */
TEST(bf16)
{
    in_bf16 = 1;
    train_both();
}

TESTS(NULL, NULL)
