/* What layers do with their gradients: the rules of momentum and Adam, and that recurrent layers
 * learn. And forward passes that differences say nothing about: weights of -1 and 1,
 * convolutions of size 1. */
#include "check.h"

#include <math.h>

#include "layers.h"

enum { RATE_INVERSE = 10, DECAY_INVERSE = 100 };
#define RULE "learning_rate=.1\nmomentum=.5\ndecay=.01\npolicy=constant\n"

/* Returns whether the weight is what it should be. */
static int check_update(const struct rig *r, const struct cmn_tensor *t, size_t i, double then)
{
    double now = (*t->weight)[i];

    if (fabs(now - then) <= 1e-4 + 1e-4 * fabs(then)) {
        return 1;
    }
    print_error("# %s: layer %d %s%s[%zu] is %g after the updates, not %g\n", r->name, t->layer,
                t->part, t->name, i, now, then);
    wrong++;
    return 0;
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
        int right = t->kind == CMN_GRADIENT;
        for (size_t k = 0; right && k < t->n; k++) {
            double u = gradient[*t->at - r.g.flat + (ptrdiff_t)k], w = before[i][k];
            right = check_update(&r, t, k,
                                 adam ? rule_adam(w, u, r.net->batch, STEPS)
                                      : rule_sgd(w, u, r.net->batch, t->decays, STEPS));
        }
        free(before[i]);
    }
    free(before);
    free(gradient);
    close_rig(&r);
}

static void sgd(void **state)
{
    (void)state;
    wrong = 0;
    for (size_t i = 0; i < COUNT(trainable); i++) {
        updates(&trainable[i], 0);
    }
    assert_int_equal(wrong, 0);
}

static void adam(void **state)
{
    (void)state;
    wrong = 0;
    for (size_t i = 0; i < COUNT(trainable); i++) {
        updates(&trainable[i], 1);
    }
    assert_int_equal(wrong, 0);
}

/* ---- binary weights ---- */

/* Forward with -1 and 1 times a filter's mean weight; backward as if they were the weights, and
 * the full ones learn. xnor does so with the signs of the inputs, whose gradient it keeps where
 * they lie between -1 and 1. */
static void check_binary(const char *key, int xnor)
{
    const char *const form =
        IMAGE "[convolutional]\nfilters=4\nsize=3\npad=1\ngroups=2\nactivation=tanh\n%s\n";
    struct rig binary, plain;
    char cfg[256];
    const layer *b, *p;

    snprintf(cfg, sizeof cfg, form, key);
    open_rig(&binary, key, RULE, cfg);
    snprintf(cfg, sizeof cfg, form, "");
    open_rig(&plain, "plain", RULE, cfg);
    b = &binary.net->layers[0];
    p = &plain.net->layers[0];
    for (int f = 0; f < b->n; f++) {
        int size = b->nweights / b->n;
        const float *from = b->weights + f * size;
        float mean = 0;
        for (int i = 0; i < size; i++) {
            mean += fabsf(from[i]) / (float)size;
        }
        for (int i = 0; i < size; i++) {
            p->weights[f * size + i] = from[i] > 0 ? mean : -mean;
        }
    }
    memcpy(p->biases, b->biases, (size_t)b->n * sizeof *p->biases);
    memcpy(plain.pull, binary.pull, binary.outputs * sizeof *plain.pull);
    for (size_t i = 0; i < binary.inputs; i++) {
        binary.input[i] *= 2;
        plain.input[i] = xnor ? (binary.input[i] > 0 ? 1.f : -1.f) : binary.input[i];
    }
    backward(&binary);
    backward(&plain);
    for (size_t i = 0; i < binary.outputs; i++) {
        assert_true(fabsf(b->output[i] - p->output[i]) < 1e-5f);
    }
    for (int i = 0; i < b->nweights; i++) {
        assert_true(fabsf(b->weight_updates[i] - p->weight_updates[i]) < 1e-4f);
    }
    for (size_t i = 0; i < binary.inputs; i++) {
        int kept = !xnor || fabsf(binary.input[i]) < 1;
        float want = kept ? plain.net->delta[i] : ADDED;
        assert_true(fabsf(binary.net->delta[i] - want) < 1e-4f);
    }
    update_network(DK_NET(binary.net));
    close_rig(&binary);
    close_rig(&plain);
}

static void binary_weights(void **state)
{
    (void)state;
    check_binary("binary=1", 0);
    check_binary("xnor=1", 1);
    check_binary("binary=1\nxnor=1", 1);
}

/* One of size 3 whose weights are 0 but for the middle computes the same. */
static void size_one_with_a_stride(void **state)
{
    struct rig one, three;
    const layer *from, *to;

    (void)state;
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

static void local_layers_begin_with_weights_at_all_places(void **state)
{
    network *net = nets_parse("[net]\nheight=6\nwidth=6\nchannels=1\n[local]\nsize=3\nfilters=2\n");
    const layer *l = &net->layers[0];
    int zeros = 0;

    (void)state;
    assert_int_equal(l->out_w * l->out_h, 16);
    for (int i = 0; i < 16 * 2 * 9; i++) {
        zeros += l->weights[i] == 0;
    }
    assert_true(zeros < 3);
    nets_free(net);
}

/* ---- learning ---- */

/* The last input but one is to be said: only a state can know it. Returns the mean square error
 * of the last steps. */
static double remember(const char *layers)
{
    enum { BATCH = 8, STEPS = 6, ROUNDS = 600, LAST = 50 };
    struct rig r;
    char cfg[512];
    double error = 0;

    snprintf(
        cfg, sizeof cfg,
        "batch=8\ntime_steps=6\ninputs=1\n%s[connected]\noutput=1\nactivation=linear\n[cost]\n",
        layers);
    open_rig(&r, layers, "learning_rate=.3\nmomentum=.9\ndecay=0\npolicy=constant\n", cfg);
    for (int round = 0; round < ROUNDS; round++) {
        float *x = r.net->input, *y = r.net->truth;
        for (int i = 0; i < BATCH * STEPS; i++) {
            x[i] = uniform(-1, 1);
            y[i] = i < BATCH ? 0 : x[i - BATCH];
        }
        for (int b = 0; b < BATCH; b++) {
            reset_network_state(r.net, b);
        }
        train_network_datum(r.net);
        error += round < ROUNDS - LAST ? 0 : *r.net->cost / (BATCH * STEPS * LAST);
    }
    close_rig(&r);
    return error;
}

/* Without a state the best error is the variance of what is to be said: 5/6 of 1/3. */
static void recurrent_layers_learn(void **state)
{
    const char *const layers[] = {"[rnn]\noutput=10\nactivation=tanh\n",
                                  "[gru]\noutput=10\ntanh=1\n", "[lstm]\noutput=10\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(layers); i++) {
        double error = remember(layers[i]);
        print_message("# %.5s: error %.3g\n", layers[i], error);
        assert_true(error < .03);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd),
        cmocka_unit_test(adam),
        cmocka_unit_test(binary_weights),
        cmocka_unit_test(size_one_with_a_stride),
        cmocka_unit_test(local_layers_begin_with_weights_at_all_places),
        cmocka_unit_test(recurrent_layers_learn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
