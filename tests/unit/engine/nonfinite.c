#include "check.h"

#include <math.h>

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "nets.h"
#include "engine/nonfinite.h"

TEST(numbers_and_others)
{
    static const float fine[] = {0, -0.0F, 3.4e38F, -3.4e38F, 1e-45F};
    static const float not [] = {NAN, -NAN, INFINITY, -INFINITY};
    enum { N = 5000 };
    float *x = calloc(N, sizeof *x);

    for (size_t i = 0; i < N; i++) {
        x[i] = fine[i % COUNT(fine)];
    }
    assert_null(cmn_nonfinite_find(x, N));
    assert_null(cmn_nonfinite_find(x, 0));
    for (size_t k = 0; k < COUNT(not ); k++) {
        for (size_t i = 0; i < N; i += 7) {
            float kept = x[i];
            x[i] = not [k];
            assert_ptr_equal(cmn_nonfinite_find(x, N), x + i);
            assert_ptr_equal(cmn_nonfinite_find(x, i + 1), x + i);
            assert_null(cmn_nonfinite_find(x, i));
            x[i] = kept;
        }
    }
    free(x);
}

#define CFG                                                                                  \
    "[net]\nbatch=3\nheight=10\nwidth=10\nchannels=2\n"                                      \
    "[convolutional]\nfilters=70\nsize=7\npad=1\nactivation=linear\n"                        \
    "[connected]\noutput=40\nactivation=linear\n[connected]\noutput=2\nactivation=linear\n[" \
    "softmax]\n"

static network *net;
static struct cmn_gradients g;

static void open_net(void)
{
    net = nets_parse(CFG);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    net->train = 1;
    for (int i = 0; i < net->batch * net->inputs; i++) {
        net->input[i] = (float)(i % 7) / 7;
    }
    for (int i = 0; i < net->batch; i++) {
        net->truth[2 * i] = 1;
    }
}

static void close_net(void)
{
    cmn_gradients_close(&g);
    nets_free(net);
}

/* The layers in whose gradient NaN or infinity is found, as bits. */
static int found_in(struct cmn_nonfinite *last)
{
    int layers = 0;

    for (int i = 0; i < g.tensors; i++) {
        if (g.tensor[i].kind == CMN_GRADIENT && cmn_nonfinite_gradient(&g.tensor[i], last)) {
            layers |= 1 << g.tensor[i].layer;
        }
    }
    return layers;
}

static void train(void)
{
    memset(g.flat, 0, g.exchange.block.n * sizeof *g.flat);
    nets_forward(net);
    nets_backward(net);
}

/* One value of one image, of a delta, or of a weight: what backward makes of it is found. */
TEST(found_in_a_gradient)
{
    struct cmn_nonfinite found;
    char text[256];
    long image;

    open_net();
    train();
    assert_int_equal(found_in(&found), 0);
    assert_false(cmn_nonfinite_loss(cmn_net_of(net), &found));
    cmn_nonfinite_origin(&g, cmn_net_of(net), text, sizeof text, &image);
    assert_string_equal(text, "");
    for (int at = 0; at < net->inputs; at += 37) {
        net->input[2 * net->inputs + at] = NAN;
        train();
        assert_int_equal(found_in(&found) & 1, 1);
        assert_true(cmn_nonfinite_loss(cmn_net_of(net), &found));
        assert_int_equal(found.layer, 3);
        cmn_nonfinite_origin(&g, cmn_net_of(net), text, sizeof text, &image);
        assert_string_equal(text,
                            ", first seen in the network's input, of image 2 of the micro-batch");
        assert_int_equal(image, 2);
        net->input[2 * net->inputs + at] = 0;
    }
    net->layers[1].weights[4321] = INFINITY;
    train();
    assert_int_equal(found_in(&found) & 2, 2);
    cmn_nonfinite_origin(&g, cmn_net_of(net), text, sizeof text, &image);
    assert_string_equal(text,
                        ", after an earlier update that left weights of layer 1 (connected): inf");
    assert_int_equal(image, -1);
    assert_true(cmn_nonfinite_tensor(&g, CMN_WEIGHT, &found));
    assert_int_equal(found.layer, 1);
    cmn_nonfinite_say(cmn_net_of(net), &found, text, sizeof text);
    assert_string_equal(text, "weights of layer 1 (connected): inf");
    close_net();
}

/* A whole row or column of a large matrix, which is what a bad delta or input leaves, and any
 * place of small tensors. */
TEST(rows_and_columns)
{
    struct cmn_nonfinite found;
    int large = 0;

    open_net();
    for (int i = 0; i < g.tensors; i++) {
        const struct cmn_tensor *t = &g.tensor[i];
        size_t columns = t->rows ? t->n / (size_t)t->rows : 1, rows = t->n / columns;
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        for (size_t line = 0; line < rows + columns; line += 3) {
            int is_row = line < rows;
            float *first = *t->at + (is_row ? line * columns : line - rows);
            for (size_t k = 0; k < (is_row ? columns : rows); k++) {
                first[is_row ? k : k * columns] = is_row ? NAN : -INFINITY;
            }
            assert_true(cmn_nonfinite_gradient(t, &found));
            memset(*t->at, 0, t->n * sizeof(float));
        }
        assert_false(cmn_nonfinite_gradient(t, &found));
        /* A single product that overflows: seen where the gradient is small, else in the weights
         * that it makes. */
        (*t->at)[t->n - 1] = INFINITY;
        assert_int_equal(cmn_nonfinite_gradient(t, &found), t->n <= 4096 || columns == 1);
        (*t->at)[t->n - 1] = 0;
        if (t->n > 4096) {
            float kept = (*t->weight)[t->n - 1];
            (*t->weight)[t->n - 1] = -INFINITY;
            assert_true(cmn_nonfinite_tensor(&g, CMN_WEIGHT, &found));
            assert_int_equal(found.layer, t->layer);
            (*t->weight)[t->n - 1] = kept;
            large++;
        }
    }
    assert_true(large > 0);
    close_net();
}

TESTS(NULL, NULL)
