/* Each layer's backward pass against finite differences of its forward pass: each tensor that is
 * learned, and the input. yolo, region, detection and iseg have no objective that their
 * gradients belong to: the cost which they print is the square of their gradients. */
#include "check.h"

#include <math.h>

#include "activations.h"
#include "blas.h"
#include "layers.h"
#include "maxpool_layer.h"

static int wrong;                /* what has been found so far in a test, so that it names all */
static const double MOST = 1e-2; /* of the differences' own size */

/* `factor` times the gradient against the differences by x, of which there are n: by about 200
 * of them at most. */
static void compare(struct rig *r, int layer_index, const char *name, float *x,
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
        print_error("# %s: layer %d %s: %.2g apart from differences of %.2g\n", r->name,
                    layer_index, name, sqrt(apart), sqrt(size));
        wrong++;
    }
}

static void compare_all(struct rig *r, double factor)
{
    float *delta = calloc(r->inputs + r->g.exchange.block.n, sizeof *delta),
          *flat = delta + r->inputs;

    backward(r);
    for (size_t i = 0; i < r->inputs; i++) {
        delta[i] = r->net->delta[i] - ADDED;
    }
    memcpy(flat, r->g.flat, r->g.exchange.block.n * sizeof *flat);
    for (int i = 0; i < r->g.tensors; i++) {
        const struct cmn_tensor *t = &r->g.tensor[i];
        if (t->kind == CMN_GRADIENT) {
            compare(r, t->layer, t->name, *t->weight, flat + (*t->at - r->g.flat), t->n, factor);
        }
    }
    compare(r, 0, "input", r->input, delta, r->inputs, factor);
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

TEST(layers)
{
    for (size_t i = 0; i < COUNT(trainable); i++) {
        differences(&trainable[i], 1.f / 200);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        differences(&others[i], 1.f / 1000);
    }
}

TEST(activations)
{
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
}

/* Differences agree with whichever point is picked, so this looks for the largest one itself; many
 * are equal, and the first one counts. */
static void pick_largest(int height, int width, int size, int stride)
{
    maxpool_layer l = make_maxpool_layer(2, height, width, 3, size, stride, size - 1);
    int n = l.batch * l.c * height * width, offset = l.pad / 2;
    float *x = calloc((size_t)n, sizeof *x);
    network net = {.input = x};

    for (int i = 0; i < n; i++) {
        x[i] = (float)(i * 7 % 5 - 2) / 2;
    }
    forward_maxpool_layer(l, net);
    for (int i = 0; i < l.outputs * l.batch; i++) {
        int column = i % l.out_w * stride - offset;
        int row = i / l.out_w % l.out_h * stride - offset, best = -1;
        for (int k = 0; k < size * size; k++) {
            int at_row = row + k / size, at_column = column + k % size;
            int at = (i / (l.out_w * l.out_h) * height + at_row) * width + at_column;
            if (at_row >= 0 && at_row < height && at_column >= 0 && at_column < width &&
                (best < 0 || x[at] > x[best])) {
                best = at;
            }
        }
        if (l.indexes[i] != best || l.output[i] != x[best]) {
            fail_msg("%d x %d, size %d, stride %d: output %d is %g of input %d, not %d", height,
                     width, size, stride, i, (double)l.output[i], l.indexes[i], best);
        }
    }
    free_layer(l);
    free(x);
}

TEST(maxpool)
{
    for (int k = 0; k < 2 * 2 * 3 * 2; k++) {
        pick_largest(4 + k % 2, 11 + k / 2 % 2, 1 + k / 4 % 3, 1 + k / 12);
    }
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

TEST(loss_layers)
{
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
}

/* Of a probability that is 0 or 1 the loss is large, and a number; what is no number stays so. */
TEST(saturated_losses)
{
    float p[] = {0, 0, 1, 1, .25F, .25F, 1e-30F, NAN}, t[] = {0, 1, 0, 1, 0, 1, 1, 1}, d[8], e[8];
    const double softmax[] = {0, 100, 0, 0, 0, -log(.25), -log((double)1e-30F)};
    const double logistic[] = {0, 100, 100, 0, -log(.75), -log(.25), -log((double)1e-30F)};

    for (int way = 0; way < 2; way++) {
        const double *want = way ? logistic : softmax;
        (way ? logistic_x_ent_cpu : softmax_x_ent_cpu)(8, p, t, d, e);
        for (int i = 0; i < 7; i++) {
            if (!(fabs((double)e[i] - want[i]) < 1e-5) || d[i] != t[i] - p[i]) {
                fail_msg("%s of %g where %g is true: %g, delta %g", way ? "logistic" : "softmax",
                         (double)p[i], (double)t[i], (double)e[i], (double)d[i]);
            }
        }
        assert_true(isnan(e[7]));
    }
}

static void none_wrong(void)
{
    assert_int_equal(wrong, 0);
}

TESTS(NULL, none_wrong)
