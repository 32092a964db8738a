/* The evaluator against a plain loop over the list, for lists that the ranks cannot share
 * evenly. */
#include "ranks/ranks.h"
#include "folder.h"

#include "engine/darknet_net.h"
#include "evaluators/classifier.h"
#include "nets.h"

#define CFG                                                                                      \
    "[net]\nbatch=4\nheight=6\nwidth=6\nchannels=1\n[convolutional]\nfilters=4\nsize=3\npad=1\n" \
    "activation=leaky\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"

enum { IMAGES = 23, CLASSES = 3, SIDE = 6 };

static char *paths[IMAGES];
static char *labels[CLASSES + 1] = {"zero", "one", "two", NULL};
static network *net;

static void write_images(void)
{
    for (int i = 0; i < IMAGES; i++) {
        image im = make_image(SIDE, SIDE, 1);
        char name[300];
        for (int k = 0; k < SIDE * SIDE; k++) {
            im.data[k] = (float)(int)uniform(0, 256) / 255;
        }
        snprintf(name, sizeof name, "%s/%d-%s", folder, i, labels[i % CLASSES]);
        asprintf(&paths[i], "%s.jpg", name);
        if (top.rank == 0) {
            save_image(im, name);
        }
        free_image(im);
    }
    MPI_Barrier(top.world);
}

static void setup(void)
{
    if (top.rank == 0) {
        make_folder();
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, top.world);
    write_images();
    srand(3); /* the same weights everywhere */
    net = nets_parse(CFG);
}

static void teardown(void)
{
    MPI_Barrier(top.world);
    for (int i = 0; i < IMAGES; i++) {
        free(paths[i]);
    }
    nets_free(net);
    if (top.rank == 0) {
        remove_folder();
    }
}

/* As `classifier valid` does it, one image after the other. */
static struct cmn_score plain(int images, int top_k_of)
{
    struct cmn_score score = {images, 0, 0, 0};

    cmn_net_set_batch(cmn_net_of(net), 1);
    for (int i = 0; i < images; i++) {
        image im = load_image(paths[i], 0, 0, 1);
        float *out = network_predict(DK_NET(net), im.data);
        int better = 0;
        for (int k = 0; k < CLASSES; k++) {
            better += out[k] > out[i % CLASSES];
        }
        score.top1 += better == 0;
        score.topk += better < top_k_of;
        free_image(im);
    }
    cmn_net_set_batch(cmn_net_of(net), 4);
    return score;
}

RANK_TEST(counts)
{
    const int images[] = {1, 2, 3, 4, 5, 8, 17, IMAGES};
    double loss = -1;

    for (size_t i = 0; i < COUNT(images); i++) {
        struct cmn_score want = plain(images[i], 2);
        for (int chunk = 1; chunk <= 4; chunk++) {
            struct cmn_labelled_images set = {paths, images[i], labels, CLASSES, 2};
            struct cmn_score got = {0, 0, 0, 0};
            cmn_evaluate(cmn_net_of(net), &set, chunk, &top, &got);
            CHECK_SAYING(got.images == want.images, "%ld of %ld images", got.images, want.images);
            CHECK_SAYING(got.top1 == want.top1, "%d images in chunks of %d: %ld right, not %ld",
                         images[i], chunk, got.top1, want.top1);
            CHECK_SAYING(got.topk == want.topk, "top 2 of %d images", images[i]);
            CHECK(same_everywhere(&got, sizeof got));
            CHECK(net->batch == 4);
            if (images[i] == IMAGES) { /* of which some are right, and some wrong */
                CHECK(got.top1 > 0 && got.topk > got.top1 && got.topk < IMAGES);
                CHECK(got.loss > 0 &&
                      (loss < 0 || (got.loss > loss * 0.99999 && got.loss < loss * 1.00001)));
                loss = got.loss;
            }
        }
    }
}

/* Validation happens between two steps: the network must be as it was. */
RANK_TEST(training_goes_on)
{
    struct cmn_labelled_images set = {paths, IMAGES, labels, CLASSES, 1};
    struct cmn_score score;
    float *input = net->input, *truth = net->truth, *delta = net->delta;
    size_t weights = (size_t)net->layers[0].nweights * sizeof(float);
    float *before = malloc(weights);
    int train = net->train;
    size_t seen = *net->seen;

    memcpy(before, net->layers[0].weights, weights);
    cmn_evaluate(cmn_net_of(net), &set, 4, &top, &score);
    CHECK(net->input == input && net->truth == truth && net->delta == delta);
    CHECK(net->train == train && net->batch == 4 && *net->seen == seen);
    for (int i = 0; i < net->n; i++) {
        CHECK(net->layers[i].batch == 4);
    }
    CHECK(!memcmp(before, net->layers[0].weights, weights));
    free(before);
}

RANK_TESTS(setup, teardown)
