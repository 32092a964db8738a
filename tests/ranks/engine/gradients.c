#include "ranks/ranks.h"

#include <math.h>

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "engine/net.h"
#include "engine/replicas.h"
#include "nets.h"
#include "engine/nonfinite.h"

#define NET "[net]\nbatch=2\nheight=4\nwidth=4\nchannels=2\n"
#define CONV "[convolutional]\nfilters=3\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n"
#define TAIL "[connected]\noutput=5\nactivation=linear\n[softmax]\n"

static network *net;
static struct cmn_gradients g;

/* srand by rank: the first weights differ, as they do in a real start. */
static void open_net(const char *cfg)
{
    srand((unsigned)top.rank + 1);
    net = nets_parse(cfg);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
}

static void close_net(void)
{
    cmn_gradients_close(&g);
    nets_free(net);
}

/* Where the network is on a GPU its tensors are there, and what is read and set here are copies of the
 * host's: they come from there, or go there. */
static void all_kinds(void (*move)(const struct cmn_gradients *of, enum cmn_tensor_kind kind))
{
    for (int kind = CMN_GRADIENT; kind <= CMN_MOMENT; kind++) {
        move(&g, (enum cmn_tensor_kind)kind);
    }
}

RANK_TEST(broadcast)
{
    open_net(NET "adam=1\n" CONV TAIL);
    *net->seen = 5000000000UL + (unsigned long)top.rank;
    cmn_net_set_updates(cmn_net_of(net), 40 + top.rank);
    for (int i = 0; i < g.tensors; i++) {
        (*g.tensor[i].at)[0] = (float)(100 * i + top.rank);
    }
    all_kinds(cmn_gradients_push);
    CHECK(top.size == 1 || !same_everywhere(net->layers[0].weights, 54 * sizeof(float)));
    cmn_replicas_broadcast(&g, cmn_net_of(net), &top);
    CHECK(*net->seen == 5000000000UL);
    CHECK(!net->t || *net->t == 40); /* AlexeyAB's tree does not count them */
    CHECK(same_everywhere(net->layers[0].weights, 54 * sizeof(float))); /* the host's: for files */
    all_kinds(cmn_gradients_pull);
    for (int i = 0; i < g.tensors; i++) {
        CHECK_SAYING((*g.tensor[i].at)[0] == (float)(100 * i), "%s", g.tensor[i].name);
        CHECK_SAYING(same_everywhere(*g.tensor[i].at, g.tensor[i].n * sizeof(float)), "%s",
                     g.tensor[i].name);
    }
    close_net();
}

#define OPTIONS "[net] batch=2\n[net] momentum=0.9\n"

/* Each change, made on the last rank alone, is found there and its first difference is named. */
/* The message with which the comparison ends the job, or NULL. */
static const char *difference(const char *said)
{
    return fatal_of(cmn_replicas_compare(&g, cmn_net_of(net), said, &top));
}

RANK_TEST(compare)
{
    static const struct {
        const char *cfg, *options, *named;
    } change[] = {
        {NET CONV TAIL, "[net] batch=2\n[net] momentum=0.5\n", "momentum=0.5"},
        {NET CONV TAIL, "[net] batch=2\n", "momentum=0.9"},
        {NET CONV "[connected]\noutput=6\nactivation=linear\n[softmax]\n", OPTIONS, "weight"},
        {NET "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=leaky\n" TAIL, OPTIONS,
         "layer 0"},
        {NET CONV "[maxpool]\nsize=1\nstride=1\n[connected]\noutput=5\n[softmax]\n", OPTIONS,
         "layers"},
        {NET CONV "[connected]\noutput=5\n[logistic]\n", OPTIONS, "layer 2"},
    };

    for (size_t i = 0; i < COUNT(change); i++) {
        int last = top.rank == top.size - 1 && top.size > 1;
        const char *fatal;
        open_net(last ? change[i].cfg : NET CONV TAIL);
        fatal = difference(last ? change[i].options : OPTIONS);
        CHECK_SAYING(last == (fatal != NULL), "change %zu: %s", i, fatal ? fatal : "equal");
        CHECK_SAYING(!fatal || strstr(fatal, change[i].named), "%zu: %s", i, fatal);
        close_net();
    }
    open_net(NET CONV TAIL);
    cmn_replicas_compare(&g, cmn_net_of(net), OPTIONS, &top);
    close_net();
}

RANK_TEST(verify)
{
    struct cmn_nonfinite bad;

    open_net(NET CONV TAIL);
    CHECK(top.size == 1 || cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad) == -1);
    cmn_replicas_broadcast(&g, cmn_net_of(net), &top);
    CHECK_SAYING(cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad) == 0 && !bad.name, "%s",
                 cmn_reason());
    /* Of three ranks and more the odd one is named, also when it is rank 0. */
    for (int odd = top.size < 3; odd < top.size; odd++) {
        for (int i = 0; i < g.tensors; i++) {
            const struct cmn_tensor *t = &g.tensor[i];
            char want[256];
            unsigned char *byte = (unsigned char *)(*t->at + t->n - 1);
            if (t->kind != CMN_WEIGHT) {
                continue;
            }
            *byte ^= top.rank == odd; /* the lowest bit of the last float */
            all_kinds(cmn_gradients_push);
            CHECK_SAYING(cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad) == -1, "%s", t->name);
            snprintf(want, sizeof want,
                     "of rank %d@%s differ from those of rank %d@%s, first in %s of layer %d (%s)",
                     odd, top.host, odd == 0, top.host, t->name, t->layer,
                     t->layer ? "connected" : "convolutional");
            CHECK_SAYING(strstr(cmn_reason(), want), "not %s: %s", want, cmn_reason());
            *byte ^= top.rank == odd;
            all_kinds(cmn_gradients_push);
            CHECK(cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad) == 0);
        }
    }
    net->layers[0].weights[top.size == 1 ? 0 : 50] = INFINITY;
    net->layers[1].biases[0] = NAN;
    all_kinds(cmn_gradients_push);
    CHECK(cmn_replicas_verify(&g, cmn_net_of(net), &top, &bad) == 0 && bad.name);
    CHECK(bad.layer == 0 && !strcmp(bad.name, "weights"));
    close_net();
}

/* What this rank receives in messages and allgathers. */
static size_t received;

int MPI_Recv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *s)
{
    int bytes;

    PMPI_Type_size(type, &bytes);
    received += (size_t)n * (size_t)bytes;
    return PMPI_Recv(to, n, type, from, tag, comm, s);
}

int MPI_Allgather(const void *from, int n, MPI_Datatype sent, void *to, int each, MPI_Datatype type,
                  MPI_Comm comm)
{
    int bytes, ranks;

    PMPI_Type_size(type, &bytes);
    PMPI_Comm_size(comm, &ranks);
    received += (size_t)each * (size_t)(bytes * (ranks - 1));
    return PMPI_Allgather(from, n, sent, to, each, type, comm);
}

/* Rank r has the same number of images as the others, without or with their spread in the variance,
 * or r + 1 images. Of all of them: sums of r, r * r and so on, in closed form. On the way go a
 * count, and mean and squares of 7 filters in doubles, ceil(log2 N) times on the rank that receives
 * most: with 1024 ranks that is 10 times, not 1023. */
RANK_TEST(statistics_by_a_tree)
{
    static const struct {
        int images, more, plain; /* more: for each rank */
    } rows[] = {{2, 0, 0}, {2, 0, 1}, {0, 0, 0}, {1, 1, 0}};
    const double n = top.size;
    size_t rounds = 0;

    while (1 << rounds < top.size) {
        rounds++;
    }
    for (size_t row = 0; row < COUNT(rows); row++) {
        double mean = rows[row].more ? (2 * n - 2) / 3 : (n - 1) / 2;
        double square = rows[row].more ? (n - 1) * (3 * n - 2) / 6 : (n - 1) * (2 * n - 1) / 6;
        double spread = rows[row].plain ? 0 : square - mean * mean;
        layer *l;
        float weight;
        open_net(NET CONV "[convolutional]\nfilters=4\nbatch_normalize=1\n" TAIL);
        l = &net->layers[1];
        g.images = rows[row].images + rows[row].more * top.rank;
        g.plain_statistics = rows[row].plain;
        for (int i = 0; i < 4; i++) {
            l->rolling_mean[i] = (float)(i - 2 * top.rank);
            l->rolling_variance[i] = (float)(i + 4 * top.rank);
        }
        weight = l->weights[0];
        all_kinds(cmn_gradients_push);
        received = 0;
        cmn_replicas_average_statistics(&g, &top);
        all_kinds(cmn_gradients_pull);
        CHECK_SAYING(top.rank ? received <= rounds * 15 * sizeof(double)
                              : received == rounds * 15 * sizeof(double),
                     "%zu bytes in %zu rounds", received, rounds);
        for (int i = 0; i < 4; i++) {
            CHECK(fabs(l->rolling_mean[i] - (i - 2 * mean)) < 1e-6);
            CHECK_SAYING(fabs(l->rolling_variance[i] - (i + 4 * mean + 4 * spread)) < 1e-5,
                         "row %zu: %g", row, l->rolling_variance[i]);
        }
        CHECK(same_everywhere(l->rolling_mean, 4 * sizeof(float)));
        CHECK(same_everywhere(l->rolling_variance, 4 * sizeof(float)));
        CHECK(l->weights[0] == weight);
        close_net();
    }
}

/* So that cmn_sync_bn, with which they are the same anyway, may save whenever it likes. */
RANK_TEST(equal_statistics_stay)
{
    const float mean[3] = {0.1F, -7.7F, 1e-30F}, variance[3] = {0.3F, 1e10F, 3e-20F};

    open_net(NET CONV TAIL);
    g.images = 7 + top.rank % 2;
    memcpy(net->layers[0].rolling_mean, mean, sizeof mean);
    memcpy(net->layers[0].rolling_variance, variance, sizeof variance);
    all_kinds(cmn_gradients_push);
    cmn_replicas_average_statistics(&g, &top);
    all_kinds(cmn_gradients_pull);
    CHECK(!memcmp(net->layers[0].rolling_mean, mean, sizeof mean));
    CHECK(!memcmp(net->layers[0].rolling_variance, variance, sizeof variance));
    close_net();
}

RANK_TESTS(NULL, NULL)
