#include "check.h"

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "nets.h"

/* A gradient that a network must have; `n` in closed form. */
struct want {
    int layer;
    const char *name;
    size_t n;
};

static void assert_tensors(const struct cmn_gradients *g, size_t weights, size_t statistics,
                           size_t moments, const struct want *want)
{
    size_t floats[CMN_FOLLOWED + 1] = {0};
    int gradients = 0;

    for (int i = 0; i < g->tensors; i++) {
        floats[g->tensor[i].kind] += g->tensor[i].n;
        gradients -= g->tensor[i].kind == CMN_GRADIENT;
    }
    assert_int_equal(floats[CMN_WEIGHT], weights);
    assert_int_equal(floats[CMN_STATISTIC], statistics);
    assert_int_equal(floats[CMN_MOMENT], moments);
    for (const struct want *end = want + 5; want < end && want->name; want++, gradients++) {
        int found = 0;
        for (int i = 0; i < g->tensors; i++) {
            const struct cmn_tensor *t = &g->tensor[i];
            found += t->kind == CMN_GRADIENT && t->layer == want->layer &&
                     !strcmp(t->name, want->name) && t->n == want->n;
        }
        if (found != 1) {
            fail_msg("layer %d %s is listed %d times", want->layer, want->name, found);
        }
    }
    assert_int_equal(gradients, 0);
}

#define MLP                                                                                   \
    "[net]\nbatch=2\nheight=2\nwidth=2\nchannels=3\n[connected]\noutput=5\nactivation=relu\n" \
    "[dropout]\nprobability=.5\n[connected]\noutput=4\nactivation=linear\n[softmax]\n"
#define CONV                                                                                      \
    "[net]\nbatch=2\nheight=8\nwidth=8\nchannels=4\n[convolutional]\nfilters=6\nsize=3\npad=1\n"  \
    "groups=2\nbatch_normalize=1\nactivation=leaky\n[maxpool]\nsize=2\nstride=2\n[convolutional]" \
    "\n"                                                                                          \
    "filters=3\nsize=1\nactivation=linear\n[avgpool]\n[softmax]\n"

#define SIDE(side) "[net]\nheight=" #side "\nwidth=" #side "\nchannels=3\n"
#define ANCHORS SIDE(32) "[convolutional]\nfilters=18\nsize=1\nactivation=linear\n"
/* AlexeyAB's tree does not begin with it. */
#define NORM SIDE(4) "[maxpool]\nsize=1\nstride=1\n[batchnorm]\n"
#define W "weight_updates"
#define B "bias_updates"
#define S "scale_updates"

/* Networks, the floats of their weights, statistics and moments, and their gradients. */
static const struct {
    const char *cfg;
    size_t weights, statistics, moments;
    struct want want[5];
} nets[] = {
    {MLP, 20 + 4 + 60 + 5, 0, 0, {{2, W, 5 * 4}, {2, B, 4}, {0, W, 2 * 2 * 3 * 5}, {0, B, 5}}},
    {CONV,
     18 + 3 + 108 + 6 + 6,
     2 * 6,
     0,
     {{2, W, 6 * 3}, {2, B, 3}, {0, W, 4 / 2 * 6 * 3 * 3}, {0, B, 6}, {0, S, 6}}},
#ifndef NETWORKS_BY_VALUE /* AlexeyAB's tree has neither, on the CPU */
    /* Darknet gives scales their moments even where there are no scales. */
    {"[net]\nadam=1\ninputs=7\n[connected]\noutput=3\n",
     21 + 3,
     0,
     2 * (21 + 3 + 3),
     {{0, W, 7 * 3}, {0, B, 3}}},
    {SIDE(4) "[deconvolutional]\nfilters=5\nsize=2\nstride=2\nbatch_normalize=1\n",
     60 + 5 + 5,
     10,
     0,
     {{0, W, 3 * 5 * 2 * 2}, {0, B, 5}, {0, S, 5}}},
    {NORM, 3, 6, 0, {{1, S, 3}}}, /* it does not train the biases */
#else
    {NORM, 6, 6, 0, {{1, S, 3}, {1, B, 3}}},
#endif
    {SIDE(6) "[local]\nfilters=2\nsize=3\nstride=1\npad=0\n",
     864 + 32,
     0,
     0,
     {{0, W, 3 * 2 * 3 * 3 * 4 * 4}, {0, B, 2 * 4 * 4}}},
    /* yolo and region keep anchors where others keep biases. */
    {ANCHORS "[yolo]\nmask=0,1,2\nanchors=1,2,3,4,5,6\nclasses=1\nnum=3\n",
     54 + 18,
     0,
     0,
     {{0, W, 3 * 18}, {0, B, 18}}},
    {ANCHORS "[region]\nanchors=1,2,3,4,5,6\nclasses=1\nnum=3\ncoords=4\n",
     54 + 18,
     0,
     0,
     {{0, W, 3 * 18}, {0, B, 18}}},
    {SIDE(4) "[maxpool]\nsize=2\nstride=2\n[avgpool]\n[softmax]\n", 0, 0, 0, {{0}}},
};

TEST(each_net_has_its_tensors)
{
    for (size_t i = 0; i < COUNT(nets); i++) {
        network *net = nets_parse(nets[i].cfg);
        struct cmn_gradients g;
        cmn_gradients_open(&g, cmn_net_of(net), NULL);
        assert_tensors(&g, nets[i].weights, nets[i].statistics, nets[i].moments, nets[i].want);
        cmn_gradients_close(&g);
        nets_free(net);
    }
}

static int any(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0) {
            return 1;
        }
    }
    return 0;
}

/* Gradients lie in the block from the last layer to the first, apart from each other, aligned, with
 * the metrics behind; all of it begins at zero, whatever the layers had. */
TEST(flat_buffer_layout)
{
    network *net = nets_parse(CONV);
    struct cmn_gradients g;
    int spans = 0, last = net->n;
    float *end;

    net->layers[0].weight_updates[3] = net->layers[0].scale_updates[5] = 1;
    net->layers[2].weight_updates[17] = net->layers[2].bias_updates[2] = 1;
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    assert_false(any(g.flat, g.exchange.block.n + CMN_METRICS));
    assert_ptr_equal(g.exchange.block.data, g.flat);
    assert_ptr_equal(g.exchange.tensor, g.span);
    end = g.flat;
    for (int i = 0; i < g.tensors; i++) {
        const struct cmn_tensor *t = &g.tensor[i];
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        assert_true(*t->at >= end && t->layer <= last);
        assert_int_equal((uintptr_t)*t->at % 64, 0);
        assert_ptr_equal(g.span[spans].data, *t->at);
        assert_int_equal(g.span[spans].n, t->n);
        spans++;
        end = *t->at + t->n;
        last = t->layer;
    }
    assert_int_equal(last, 0);
    assert_int_equal(g.exchange.tensors, spans);
    assert_ptr_equal(net->layers[2].weight_updates, g.flat);
    assert_true(g.metrics >= end);
    assert_ptr_equal(g.metrics, g.flat + g.exchange.block.n);
    assert_ptr_equal(g.exchange.metrics.data, g.metrics);
    assert_int_equal(g.exchange.metrics.n, CMN_METRICS);
    cmn_gradients_close(&g);
    assert_null(g.flat);
    for (int i = 0; i < net->n; i++) {
        assert_null(net->layers[i].weight_updates);
        assert_null(net->layers[i].bias_updates);
    }
    nets_free(net);
}

static void set_input(network *net)
{
    for (int i = 0; i < net->inputs * net->batch; i++) {
        net->input[i] = (float)(i * 37 % 11) / 10;
    }
    for (int i = 0; i < net->batch; i++) {
        net->truth[i * net->truths + (i + 1) % net->truths] = 1;
    }
}

TEST(backward_writes_into_the_flat_buffer)
{
    const char *const cfg[] = {MLP, CONV};

    for (size_t k = 0; k < COUNT(cfg); k++) {
        network *net = nets_parse(cfg[k]);
        struct cmn_gradients g;
        cmn_gradients_open(&g, cmn_net_of(net), NULL);
        set_input(net);
        nets_forward(net);
        nets_backward(net);
        for (int i = 0; i < g.tensors; i++) {
            const struct cmn_tensor *t = &g.tensor[i];
#ifdef NETWORKS_BY_VALUE /* AlexeyAB's leaves those biases out */
            if (net->layers[t->layer].batch_normalize && !strcmp(t->name, "bias_updates")) {
                continue;
            }
#endif
            if (t->kind == CMN_GRADIENT && !any(*t->at, t->n)) {
                fail_msg("layer %d %s got no gradient", t->layer, t->name);
            }
        }
        assert_false(any(g.metrics, CMN_METRICS));
        update_network(DK_NET(net));
        cmn_gradients_close(&g);
        nets_free(net);
    }
}

/* Weights travel out and back; the statistics, another kind, stay. */
TEST(packs_and_unpacks)
{
    network *net = nets_parse(CONV);
    struct cmn_gradients g;
    float *pack, *weights;
    size_t n;

    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    n = cmn_gradients_floats(&g, CMN_WEIGHT);
    assert_int_equal(n, 18 + 3 + 108 + 6 + 6);
    pack = malloc(n * sizeof *pack);
    weights = malloc(n * sizeof *weights);
    cmn_gradients_pack(&g, CMN_WEIGHT, pack);
    assert_memory_equal(pack, net->layers[2].weights, 18 * sizeof *pack);
    for (size_t i = 0; i < n; i++) {
        weights[i] = (float)i;
    }
    net->layers[0].rolling_mean[0] = -1;
    cmn_gradients_unpack(&g, CMN_WEIGHT, weights);
    assert_true(net->layers[2].weights[17] == 17 && net->layers[0].weights[0] == 18 + 3);
    assert_true(net->layers[0].rolling_mean[0] == -1);
    cmn_gradients_unpack(&g, CMN_WEIGHT, pack);
    cmn_gradients_pack(&g, CMN_WEIGHT, weights);
    assert_memory_equal(pack, weights, n * sizeof *pack);
    free(pack);
    free(weights);
    cmn_gradients_close(&g);
    nets_free(net);
}

TESTS(NULL, NULL)
