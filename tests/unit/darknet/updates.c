/* What layers do with their gradients: the rules of momentum and Adam. And a forward pass that
 * differences say nothing about: convolutions of size 1. */
#include "check.h"

#include <math.h>

#include "layers.h"

enum { RATE_INVERSE = 10, DECAY_INVERSE = 100 };
#define RULE "learning_rate=.1\nmomentum=.5\ndecay=.01\npolicy=constant\n"

static void check_update(const struct rig *r, const struct cmn_tensor *t, size_t i, double then)
{
    double now = (*t->weight)[i];

    if (!(fabs(now - then) <= 1e-4 + 1e-4 * fabs(then))) {
        fail_msg("%s: layer %d %s[%zu] is %g after the updates, not %g", r->name, t->layer, t->name,
                 i, now, then);
    }
}

/* What the weight becomes by `steps` updates with the gradient u, that of each step being the
 * same. */
static double rule_sgd(double w, double u, double batch, int decays, int steps)
{
    double kept = 0;

    for (int i = 0; i < steps; i++) {
        double d = u + kept - (decays ? w * batch / DECAY_INVERSE : 0);
        w += d / batch / RATE_INVERSE;
        kept = d / 2;
    }
    return w;
}

static double rule_adam(double w, double u, double batch, int steps)
{
    double m = 0, v = 0;

    for (int i = 1; i <= steps; i++) {
        double d = u - w * batch / DECAY_INVERSE;
        m = .9 * m + .1 * d;
        v = .999 * v + .001 * d * d;
        w += m / (1 - pow(.9, i)) / (sqrt(v / (1 - pow(.999, i))) + 1e-7) / RATE_INVERSE;
    }
    return w;
}

static void updates(const struct layer_case *c, int adam)
{
    enum { STEPS = 3 };
    struct rig r;
    size_t n;
    float *gradient, **before;

    open_rig(&r, c->name, adam ? RULE "adam=1\n" : RULE, c->cfg);
    backward(&r);
    n = r.g.exchange.block.n;
    gradient = calloc(n + 1, sizeof *gradient);
    before = calloc((size_t)r.g.tensors, sizeof *before);
    memcpy(gradient, r.g.flat, n * sizeof *gradient);
    for (int i = 0; i < r.g.tensors; i++) {
        const struct cmn_tensor *t = &r.g.tensor[i];
        before[i] = calloc(t->n, sizeof **before);
        memcpy(before[i], t->kind == CMN_GRADIENT ? *t->weight : *t->at, t->n * sizeof **before);
    }
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < n && step; i++) {
            r.g.flat[i] += gradient[i];
        }
        update_network(DK_NET(r.net));
    }
    for (int i = 0; i < r.g.tensors; i++) {
        const struct cmn_tensor *t = &r.g.tensor[i];
        for (size_t k = 0; t->kind == CMN_GRADIENT && k < t->n; k++) {
            double u = gradient[*t->at - r.g.flat + (ptrdiff_t)k], w = before[i][k];
            check_update(&r, t, k,
                         adam ? rule_adam(w, u, r.net->batch, STEPS)
                              : rule_sgd(w, u, r.net->batch, t->decays, STEPS));
        }
        free(before[i]);
    }
    free(before);
    free(gradient);
    close_rig(&r);
}

TEST(rules)
{
    for (size_t i = 0; i < COUNT(trainable); i++) {
        updates(&trainable[i], 0);
        updates(&trainable[i], 1);
    }
}

/* One of size 3 whose weights are 0 but for the middle computes the same. */
TEST(size_one_with_a_stride)
{
    struct rig one, three;
    const layer *from, *to;

    open_rig(&one, "size 1", "", IMAGE "[convolutional]\nfilters=3\nsize=1\nstride=2\n");
    open_rig(&three, "size 3", "", IMAGE "[convolutional]\nfilters=3\nsize=3\npad=1\nstride=2\n");
    from = &one.net->layers[0];
    to = &three.net->layers[0];
    memset(to->weights, 0, (size_t)to->nweights * sizeof *to->weights);
    for (int i = 0; i < from->nweights; i++) {
        to->weights[9 * i + 4] = from->weights[i];
    }
    memcpy(to->biases, from->biases, (size_t)to->n * sizeof *to->biases);
    memcpy(three.input, one.input, one.inputs * sizeof *three.input);
    value(&one);
    value(&three);
    assert_int_equal(one.outputs, three.outputs);
    for (size_t i = 0; i < one.outputs; i++) {
        assert_true(fabsf(from->output[i] - to->output[i]) < 1e-5f);
    }
    close_rig(&one);
    close_rig(&three);
}

TEST(local_layers_begin_with_weights_at_all_places)
{
    network *net = nets_parse("[net]\nheight=6\nwidth=6\nchannels=1\n[local]\nsize=3\nfilters=2\n");
    const layer *l = &net->layers[0];
    int zeros = 0;

    assert_int_equal(l->out_w * l->out_h, 16);
    for (int i = 0; i < 16 * 2 * 9; i++) {
        zeros += l->weights[i] == 0;
    }
    assert_true(zeros < 3);
    nets_free(net);
}

TESTS(NULL, NULL)
