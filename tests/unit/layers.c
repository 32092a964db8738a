/* Each layer's backward pass against finite differences of its forward pass, its update against the rule.
 *
 * The objective is a fixed sum of the outputs, in double precision, so that rounding stays small. Loss layers have an objective of their own. yolo, region and detection have none that their gradients belong
 * to: the cost which they print is the square of their gradients. */
#include "check.h"

#include <math.h>

#include "activations.h"
#include "gradients.h"
#include "layers_table.h"
#include "log.h"
#include "nets.h"

static const double MOST = 1e-2;
static const float ADDED = .25f;

static int wrong; /* what has been found so far in a test, so that it names all */

struct rig {
    const char *name;
    network *net;
    struct cmn_gradients g;
    float *input, *pull; /* what goes in; the objective's gradient by the outputs */
    size_t inputs, outputs;
    int own_cost;
    float nudge;
};

static float uniform(float low, float high)
{
    static uint32_t x = 1;

    x = x * 1664525u + 1013904223u;
    return low + (high - low) * (float)(x >> 8) / (float)(1 << 24);
}

static void fill(float *x, size_t n, float low, float high)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = uniform(low, high);
    }
}

static layer *last(const struct rig *r)
{
    return &r->net->layers[r->net->n - 1];
}

static void open_rig(struct rig *r, const char *name, const char *keys, const char *cfg)
{
    char text[2048];

    memset(r, 0, sizeof *r);
    r->name = name;
    r->nudge = 1.f / 200;
    snprintf(text, sizeof text, "[net]\n%s%s", keys, cfg);
    r->net = nets_parse(text);
    if (cmn_gradients_open(&r->g, r->net, NULL, NULL)) {
        fail_msg("%s", cmn_reason());
    }
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        if (t->kind == CMN_WEIGHT) {
            int scales = !strcmp(t->name, "scales");
            fill(*t->at, t->n, scales ? .5f : -.6f, scales ? 1.5f : .6f);
        }
    }
    r->inputs = (size_t)r->net->inputs * (size_t)r->net->batch;
    r->outputs = (size_t)last(r)->outputs * (size_t)r->net->batch;
    r->input = calloc(r->inputs, sizeof *r->input);
    r->pull = calloc(r->outputs, sizeof *r->pull);
    r->net->delta = calloc(r->inputs, sizeof *r->net->delta);
    fill(r->input, r->inputs, -1, 1);
    fill(r->pull, r->outputs, -1, 1);
    fill(r->net->truth, (size_t)r->net->truths * (size_t)r->net->batch, 0, 1);
}

static void close_rig(struct rig *r)
{
    free(r->input);
    free(r->pull);
    free(r->net->delta);
    cmn_gradients_close(&r->g);
    free_network(r->net);
}

/* What a layer keeps from one batch to the next begins at the same values, and not at 0. */
static void reset(network *net)
{
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        float *const kept[] = {l->type == GRU ? l->state : NULL, l->type == LSTM ? l->h_cpu : NULL,
                               l->type == LSTM ? l->c_cpu : NULL};
        for (size_t k = 0; k < COUNT(kept); k++) {
            for (int j = 0; kept[k] && j < l->outputs * l->batch; j++) {
                kept[k][j] = (float)(j * 7 % 11) / 11 - .4f;
            }
        }
    }
}

static double value(struct rig *r)
{
    double sum = 0;

    reset(r->net);
    srand(9); /* dropout */
    memcpy(r->net->input, r->input, r->inputs * sizeof *r->input);
    r->net->train = 1;
    forward_network(r->net);
    if (r->own_cost) {
        return *last(r)->cost;
    }
    for (size_t i = 0; i < r->outputs; i++) {
        sum += (double)r->pull[i] * (double)last(r)->output[i];
    }
    return sum;
}

static void backward(struct rig *r)
{
    value(r);
    for (size_t i = 0; i < r->inputs; i++) {
        r->net->delta[i] = ADDED; /* as by another layer that reads the same */
    }
    memset(r->g.arena, 0, r->g.exchange.block.n * sizeof *r->g.arena);
    if (!r->own_cost) {
        memcpy(last(r)->delta, r->pull, r->outputs * sizeof *r->pull);
    }
    backward_network(r->net);
}

/* `factor` times the gradient against the differences by x, of which there are n: by about 200 of them at most. */
static void compare(struct rig *r, int layer_index, const char *part, const char *name, float *x,
                    const float *gradient, size_t n, double factor)
{
    double apart = 0, size = 0;

    for (size_t i = 0; i < n; i += n / 200 + 1) {
        float was = x[i];
        double high, difference;
        x[i] = was + r->nudge;
        high = value(r);
        x[i] = was - r->nudge;
        difference = (high - value(r)) / (2 * (double)r->nudge);
        x[i] = was;
        apart += pow(factor * gradient[i] - difference, 2);
        size += pow(difference, 2);
    }
    if (!(sqrt(apart) <= MOST * sqrt(size)) || !(size > 1e-6)) {
        print_error("# %s: layer %d %s%s: %.2g apart from differences of %.2g\n", r->name,
                    layer_index, part, name, sqrt(apart), sqrt(size));
        wrong++;
    }
}

static void compare_all(struct rig *r, double factor)
{
    float *arena, *delta = calloc(r->inputs, sizeof *delta);

    backward(r);
    for (size_t i = 0; i < r->inputs; i++) {
        delta[i] = r->net->delta[i] - ADDED;
    }
    arena = calloc(r->g.exchange.block.n + 1, sizeof *arena);
    memcpy(arena, r->g.arena, r->g.exchange.block.n * sizeof *arena);
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        if (t->kind == CMN_GRADIENT) {
            compare(r, t->layer, t->part, t->name, *t->weight, arena + (*t->at - r->g.arena), t->n,
                    factor);
        }
    }
    compare(r, 0, "", "input", r->input, delta, r->inputs, factor);
    free(arena);
    free(delta);
}

static void differences(const struct layer_case *c, float nudge)
{
    struct rig r;
    size_t trained = 0;

    open_rig(&r, c->name, "", c->cfg);
    r.nudge = nudge;
    for (int i = 0; i < r.g.tensors; i++) {
        trained += r.g.tensor[i].kind == CMN_GRADIENT ? r.g.tensor[i].n : 0;
    }
    assert_int_equal(trained, c->trained);
    compare_all(&r, 1);
    close_rig(&r);
}

static void trainable_layers(void **state)
{
    (void)state;
    wrong = 0;
    for (size_t i = 0; i < COUNT(trainable); i++) {
        differences(&trainable[i], 1.f / 200);
    }
    assert_int_equal(wrong, 0);
}

static void other_layers(void **state)
{
    (void)state;
    wrong = 0;
    for (size_t i = 0; i < COUNT(others); i++) {
        differences(&others[i], 1.f / 1000);
    }
    assert_int_equal(wrong, 0);
}

static void activations(void **state)
{
    (void)state;
    wrong = 0;
    for (int a = LOGISTIC; a <= SELU; a++) {
        struct layer_case c = {get_activation_string((ACTIVATION)a), NULL, 4 * 5};
        char cfg[512];
        snprintf(
            cfg, sizeof cfg,
            IMAGE
            "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n"
            "[upsample]\nstride=1\nscale=3\n[activation]\nactivation=%s\n[route]\nlayers=1,2\n",
            c.name);
        c.cfg = cfg;
        differences(&c, 1.f / 8000); /* many have kinks */
    }
    assert_int_equal(wrong, 0);
}

/* ---- loss layers ---- */

struct loss_case {
    const char *name, *cfg;
    double factor; /* of the gradient that is handed back: the cost's own gradient, downwards */
};

static const struct loss_case losses[] = {
    {"softmax", "[softmax]\n", -1},
    {"softmax, groups", "[softmax]\ngroups=2\n", -1},
    {"softmax, temperature", "[softmax]\ntemperature=2\n", -.5},
    {"logistic", "[logistic]\n", -1},
    {"sse", "[cost]\ntype=sse\n", -2},
    {"sse, scale", "[cost]\ntype=sse\nscale=.5\n", -4},
    {"masked", "[cost]\ntype=masked\n", -2},
    {"smooth", "[cost]\ntype=smooth\n", -2},
    {"L1", "[cost]\ntype=L1\n", -1},
};

static void loss_layers(void **state)
{
    (void)state;
    wrong = 0;
    for (size_t i = 0; i < COUNT(losses); i++) {
        struct rig r;
        char cfg[256];
        snprintf(cfg, sizeof cfg, VECTOR "[connected]\noutput=6\nactivation=linear\n%s",
                 losses[i].cfg);
        open_rig(&r, losses[i].name, "", cfg);
        r.own_cost = 1;
        for (int k = 0; k < r.net->truths * r.net->batch; k++) {
            float *truth = &r.net->truth[k];
            if (!strncmp(losses[i].name, "softmax", 7)) {
                *truth = k % (strstr(losses[i].cfg, "groups") ? 3 : 6) == 1;
            } else if (!strcmp(losses[i].name, "masked") && k % 3 == 0) {
                *truth = SECRET_NUM;
            } else if (!strcmp(losses[i].name, "smooth")) {
                *truth *= 4; /* on both sides of where it becomes linear */
            }
        }
        compare_all(&r, losses[i].factor);
        close_rig(&r);
    }
    assert_int_equal(wrong, 0);
}

/* ---- updates ---- */

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

/* What the weight becomes by `steps` updates with the gradient u, that of each step being the same. */
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
    memcpy(gradient, r.g.arena, n * sizeof *gradient);
    for (int i = 0; i < r.g.tensors; i++) {
        const struct cmn_tensor *t = &r.g.tensor[i];
        before[i] = calloc(t->n, sizeof **before);
        memcpy(before[i], t->kind == CMN_GRADIENT ? *t->weight : *t->at, t->n * sizeof **before);
    }
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < n && step; i++) {
            r.g.arena[i] += gradient[i];
        }
        update_network(r.net);
    }
    for (int i = 0; i < r.g.tensors; i++) {
        const struct cmn_tensor *t = &r.g.tensor[i];
        int right = t->kind == CMN_GRADIENT;
        for (size_t k = 0; right && k < t->n; k++) {
            double u = gradient[*t->at - r.g.arena + (ptrdiff_t)k], w = before[i][k];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainable_layers),
        cmocka_unit_test(other_layers),
        cmocka_unit_test(activations),
        cmocka_unit_test(loss_layers),
        cmocka_unit_test(sgd),
        cmocka_unit_test(adam),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
