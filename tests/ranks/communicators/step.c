/* Sum and update in one (shm's step) against naive's sum and Darknet's own update of every layer
 * type, on the world's ranks as one node and as several. */
#include "ranks/ranks.h"

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "engine/replicas.h"
#include "nets.h"
#include "optimizers/gradient_exchange.h"

enum { UPDATES = 4, IMAGES = 24 };

static const float RATE = 0.1F, MOMENTUM = 0.9F, DECAY = 0.002F;

#define NET "[net]\nbatch=2\nheight=6\nwidth=6\nchannels=2\n"
#define END "[connected]\noutput=4\nlearning_rate=0.5\n[softmax]\n"

static const char *const nets[] = {
    NET "[connected]\noutput=37\nbatch_normalize=1\n" END,
    NET "[connected]\noutput=251\nbatch_normalize=1\n" END, /* for non-temporal stores */
    NET "[convolutional]\nfilters=5\nsize=3\npad=1\nbatch_normalize=1\nlearning_rate=0.3\n"
        "[convolutional]\nfilters=3\nsize=3\nstride=2\npad=1\n" END,
#ifndef NETWORKS_BY_VALUE /* AlexeyAB's tree does not know it */
    NET "[deconvolutional]\nfilters=3\nsize=2\nstride=2\n" END,
#endif
    NET "[local]\nfilters=3\nsize=3\nstride=1\npad=1\n" END,
};

struct side {
    const struct cmn_communicator *c;
    void *self;
    network *net;
    struct cmn_gradients g;
};

static void open_side(struct side *s, const char *name, const char *cfg, struct cmn_topology *t,
                      struct cmn_options *o)
{
    const char *why;

    snprintf(o->communicator, sizeof o->communicator, "%s", name);
    s->c = cmn_communicator_choose(t, o, &why);
    CHECK_SAYING(s->c && s->c->open(&s->self, s->c, t, o) == 0, "%s: %s", name, cmn_reason());
    srand(5);
    s->net = nets_parse(cfg);
    cmn_gradient_exchange_open(&s->g, cmn_net_of(s->net), s->c, s->self);
    MPI_Barrier(t->world);
    cmn_replicas_broadcast(&s->g, cmn_net_of(s->net), t);
    MPI_Barrier(t->world);
}

static void close_side(struct side *s)
{
    cmn_gradients_close(&s->g);
    nets_free(s->net);
    s->c->close(s->self);
}

/* A backward pass that gives known gradients; every rank its own. */
static void backward(struct side *s, int rank, int step)
{
    for (int i = 0; i < s->g.exchange.tensors; i++) {
        for (size_t j = 0; j < s->g.span[i].n; j++) {
            s->g.span[i].data[j] +=
                (float)((int)((j * 7 + (size_t)(i + step * 5)) % 23) - 11) * (float)(rank + 1) / 16;
        }
    }
    for (int i = 0; i < CMN_METRICS; i++) {
        s->g.metrics[i] = (float)(rank + i + step);
    }
}

static void update_as_darknet(struct side *s, const struct cmn_topology *t)
{
    update_args a = {.batch = IMAGES,
                     .learning_rate = RATE,
                     .momentum = MOMENTUM / (float)t->size,
                     .decay = DECAY};

    s->c->allreduce(s->self, &s->g.exchange);
    nets_update(s->net, a);
}

static const char *trained; /* the cfg */

static void near(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        float d = a[i] - b[i], size = a[i] < 0 ? -a[i] : a[i];
        CHECK_SAYING(d <= 1e-5F * (1 + size) && -d <= 1e-5F * (1 + size),
                     "%s at %zu: %g, not %g, of\n%s", what, i, (double)b[i], (double)a[i], trained);
    }
}

static void compare(struct side *want, struct side *got, const struct cmn_topology *t)
{
    int span = 0;

    for (int i = 0; i < want->g.tensors; i++) {
        const struct cmn_tensor *a = &want->g.tensor[i], *b = &got->g.tensor[i];
        if (a->kind == CMN_GRADIENT) {
            float *left = malloc((a->n + 1) * sizeof *left),
                  *expected = malloc((a->n + 1) * sizeof *left);
            near(*a->weight, *b->weight, a->n, a->name);
            CHECK(same_everywhere(*b->weight, a->n * sizeof *left));
            /* What is left for the next step counts once. */
            MPI_Allreduce(*a->at, expected, (int)a->n, MPI_FLOAT, MPI_SUM, t->world);
            MPI_Allreduce(*b->at, left, (int)a->n, MPI_FLOAT, MPI_SUM, t->world);
            near(expected, left, a->n, "momentum");
            free(left);
            free(expected);
            span++;
        }
    }
    CHECK(span == got->g.exchange.tensors && span > 1);
    for (int i = 0; i < CMN_METRICS; i++) {
        CHECK(want->g.metrics[i] == got->g.metrics[i]);
    }
}

/* rand_normal() keeps a number from call to call: equal seeds do not give equal weights. */
static void copy_weights(const struct side *from, struct side *to)
{
    for (int i = 0; i < from->g.tensors; i++) {
        if (from->g.tensor[i].kind == CMN_WEIGHT) {
            memcpy(*to->g.tensor[i].at, *from->g.tensor[i].at, from->g.tensor[i].n * sizeof(float));
        }
    }
}

static void train(const char *cfg, struct cmn_topology *t)
{
    struct side naive = {0}, shm = {0};
    struct cmn_options o, p;

    trained = cfg;
    cmn_options_default(&o);
    cmn_options_default(&p);
    open_side(&naive, "naive", cfg, t, &o);
    open_side(&shm, "shm", cfg, t, &p);
    CHECK(shm.c->step != NULL);
    copy_weights(&naive, &shm);
    MPI_Barrier(t->world);
    for (int step = 0; step < UPDATES; step++) {
        backward(&naive, t->rank, step);
        backward(&shm, t->rank, step);
        update_as_darknet(&naive, t);
        cmn_gradient_exchange_step(&shm.g, shm.c, shm.self, IMAGES, RATE, DECAY,
                                   &(struct cmn_sgd){.momentum = MOMENTUM});
        compare(&naive, &shm, t);
        MPI_Barrier(t->world); /* weights in common: nobody steps on while another still compares */
    }
    close_side(&naive);
    close_side(&shm);
}

WORLD_TEST(as_darknet_updates)
{
    struct cmn_topology mine = *t;

    for (size_t i = 0; i < COUNT(nets); i++) {
        train(nets[i], &mine);
    }
}

RANK_TESTS(NULL, NULL)
