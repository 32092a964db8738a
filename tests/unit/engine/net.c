/* The handle of a network: what other rooms read and set through it. */
#include "check.h"

#include "engine/darknet_net.h"
#include "engine/inference.h"
#include "engine/net.h"
#include "nets.h"

#define CFG                                                                              \
    "[net]\nbatch=8\nsubdivisions=2\nheight=8\nwidth=6\nchannels=1\nmax_batches=10\n"    \
    "learning_rate=.5\nburn_in=3\n[convolutional]\nfilters=3\nsize=3\npad=1\nstride=1\n" \
    "activation=linear\n[avgpool]\n[softmax]\n"

static network *net;
static struct cmn_net *handle;

static void setup(void)
{
    net = nets_parse(CFG);
    handle = cmn_net_of(net);
}

static void teardown(void)
{
    nets_free(net);
}

TEST(shape)
{
    struct cmn_net_size size = cmn_net_size(handle);

    assert_int_equal(cmn_net_layers(handle), 3);
    assert_string_equal(cmn_net_layer_name(handle, 1), "avgpool");
    assert_int_equal(cmn_net_batch(handle), 4);
    assert_int_equal(cmn_net_subdivisions(handle), 2);
    assert_int_equal(cmn_net_inputs(handle), 48);
    assert_int_equal(cmn_net_truths(handle), 3);
    assert_int_equal(size.width, 6);
    assert_int_equal(size.height, 8);
    assert_true(cmn_net_classifies(handle));
    assert_true(cmn_net_has_loss(handle));
    assert_false(cmn_net_detects(handle));
    assert_false(cmn_net_traits(handle).uses_adam);
    assert_int_equal(cmn_net_box_classes(handle, 2), -1);
}

TEST(ends_where_it_is_told)
{
    cmn_net_set_seen(handle, 8 * 9);
    assert_int_equal(cmn_net_iteration(handle), 9);
    assert_false(cmn_net_training_ended(handle));
    cmn_net_set_seen(handle, 8 * 10);
    assert_true(cmn_net_training_ended(handle));
    cmn_net_set_last_iteration(handle, 0);
    assert_false(cmn_net_training_ended(handle));
    cmn_net_stop_after_this_iteration(handle);
    assert_int_equal(cmn_net_last_iteration(handle), 10);
    assert_true(cmn_net_training_ended(handle));
}

TEST(learning_rate)
{
    cmn_net_scale_learning_rate(handle, 4);
    assert_true(cmn_net_learning_rate(handle) == 2);
    assert_int_equal(cmn_net_burn_in(handle), 3);
}

TEST(counts_right_answers)
{
    for (int i = 0; i < 4; i++) { /* the label is class 1; the first three images answer it */
        net->output[3 * i + (i < 3 ? 1 : 2)] = 1;
        net->truth[3 * i + 1] = 1;
    }
    assert_int_equal(cmn_net_count_right(handle), 3);
    cmn_net_set_batch(handle, 2);
    assert_int_equal(cmn_net_count_right(handle), 2);
}

#ifndef NETWORKS_BY_VALUE /* AlexeyAB's tree does not resize classifiers */

TEST(keeps_a_batch_over_a_resize)
{
    struct cmn_net_size size = cmn_net_size(handle);
    const float *before = net->input;
    float *saved;

    cmn_net_resize(handle, size);
    assert_ptr_equal(net->input, before); /* nothing to do */
    net->input[4 * 48 - 1] = 5;
    net->truth[4 * 3 - 1] = 6;
    saved = cmn_net_save_batch(handle);
    cmn_net_resize(handle, (struct cmn_net_size){16, 16});
    assert_int_equal(cmn_net_inputs(handle), 256);
    cmn_net_resize(handle, size);
    cmn_net_restore_batch(handle, saved);
    assert_true(net->input[4 * 48 - 1] == 5);
    assert_true(net->truth[4 * 3 - 1] == 6);
}

#endif

TEST(names)
{
    char name[8];

    cmn_net_name("some/folder/my.v2.cfg", name, sizeof name);
    assert_string_equal(name, "my");
}

/* Whatever lies in memory behind the array that Darknet makes of the lines. */
TEST(names_of_classes_end)
{
    static const char lines[] = "a\nb\nc\nd\ne\nf\ng\n";

    for (int lines_left = 1; lines_left <= 7; lines_left++) {
        char *file = nets_file(lines + 2 * (7 - lines_left)), **name;
        int n = -1;

        name = cmn_read_names(file, &n);
        assert_int_equal(n, lines_left);
        assert_string_equal(name[n - 1], "g");
        assert_null(name[n]);
        unlink(file);
        free(file);
    }
}

/* With a tree of classes only leaves count, by the product of their path's probabilities. */
TEST(best_of_a_tree_of_classes)
{
    static const float out[] = {.9F, .1F, .6F, .4F};
    char *tree = nets_file("animal -1\nthing -1\ncat 0\ndog 0\n"), cfg[512];
    int best[4];
    network *n;

    snprintf(cfg, sizeof cfg,
             "[net]\nbatch=2\nheight=2\nwidth=2\nchannels=1\n[connected]\noutput=4\n"
             "[softmax]\ntree=%s\n",
             tree);
    n = nets_parse(cfg);
    for (int i = 0; i < 2; i++) {
        memcpy(n->output + 4 * i, out, sizeof out);
    }
    cmn_net_best_classes(cmn_net_of(n), 1, 4, 3, best);
    assert_memory_equal(best, ((const int[]){2, 3, 1}), 3 * sizeof(int));
    assert_memory_equal(n->output, out, sizeof out); /* of the other image */
    nets_free(n);
    unlink(tree);
    free(tree);
}

TESTS(setup, teardown)
