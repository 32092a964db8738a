/* The tensors of a network, and the flat gradient buffer: one block that holds all gradients, so
 * that they can be exchanged at once.
 *
 * tensors.c lists the tensors by layer type and copies them; flat_buffer.c moves the gradients
 * into the block, which lies in the CPU's or in the GPU's memory (flat_buffer_cpu.c,
 * flat_buffer_gpu.c). Where the network trains on a GPU a tensor has two places: the host's,
 * where Darknet reads and writes files, and the device's, where it trains. What fails here ends
 * the job. */
#ifndef CMN_GRADIENTS_H
#define CMN_GRADIENTS_H

#include <stddef.h>
#include <stdint.h>

#include "transports/exchange.h"

struct cmn_net;

/* ---- tensors ---- */

enum cmn_tensor_kind {
    CMN_GRADIENT,  /* *_updates: summed over the ranks in every step */
    CMN_WEIGHT,    /* weights, biases, scales */
    CMN_STATISTIC, /* rolling mean and variance of batch normalisation */
    CMN_MOMENT,    /* what an optimizer keeps besides the gradient (Adam) */
    CMN_EMA,       /* Darknet's own exponential average of weights (ema_alpha) */
    CMN_FOLLOWED   /* what Darknet decides by: each rank follows it, and steps end with the mean */
};

struct cmn_tensor {
    enum cmn_tensor_kind kind;
    int layer;        /* index in the network */
    const char *part; /* "" or the sub-layer, e.g. "input_layer." */
    const char *name; /* field of struct layer */
    float **at;       /* the network's own pointer, so that the tensor can be moved */
    float **device;   /* the same for the GPU's copy; NULL: there is none */
    size_t n;         /* floats */
    /* of a CMN_GRADIENT: */
    int rows;                /* of the matrix that it is, 0: none */
    float **weight;          /* the network's pointer to what it is the gradient of */
    const float *rate_scale; /* the layer's factor of the learning rate */
    int decays;              /* whether weight decay applies */
    const float *limit;      /* the GPU's update keeps the weights within this; NULL, 0: none */
    float **device_weight;   /* as weight, in the GPU's memory */
    float **device_m, **device_v; /* there, Adam's moments, which may be NULL until the block is
                                     made; NULL: it has none */
    double keeps; /* of a CMN_STATISTIC: the part of it that Darknet keeps in each micro-batch */
};

/* A factor of the rolling statistics of which k is kept: scale * k^power * (1 + k + ... +
 * k^(terms - 1)); divided by that sum where terms is negative. */
struct cmn_rolling_factor {
    double scale;
    int power, terms;
};

/* Metrics: sums that are piggybacked on the gradients in the same exchange. */
enum cmn_metric {
    CMN_LOSS,
    CMN_RIGHT,
    CMN_IMAGES,
    CMN_INTERRUPTS,
    CMN_TERMINATIONS, /* ranks that got SIGINT, SIGTERM */
    CMN_METRICS = 16
};

struct cmn_flat_buffer_ops;

/* Darknet's numbers for Adam; *t counts the updates, this one included. */
struct cmn_adam {
    float b1, b2, eps;
    const int *t;
};

struct cmn_gradients {
    struct cmn_tensor *tensor; /* of all kinds; gradients from the last layer to the first */
    int tensors;
    const struct cmn_flat_buffer_ops *ops; /* the CPU's or the GPU's */
    int on_gpu;                            /* then the block is the GPU's, the metrics the host's */
    float *flat;           /* gradients in backward order, each padded, then the metrics */
    int flat_is_ours;      /* and not the communicator's */
    int fills_weights;     /* this rank is the one to fill the weights that its node shares */
    float *metrics;        /* CMN_METRICS floats */
    struct cmn_span *span; /* the gradients, unpadded */
    int *tensor_of;        /* of each gradient: its number in `tensor` */
    /* Of each gradient, for a step. The update takes scale times the sum (1, but for LARS). */
    float *scale, *rate, *decay;
    float *host_weights;             /* on a GPU: page-locked, as the flat buffer lies */
    struct cmn_flat_buffer_gpu *gpu; /* what else a GPU needs; NULL: it is the CPU */
    /* Images of a micro-batch on this rank: the weight of its statistics in averages. 0: as any
     * other rank's. */
    double images;
    int plain_statistics; /* averages of statistics are means, without the ranks' spread */
    struct cmn_adam adam;
    struct cmn_exchange exchange;
};

/* Where the blocks of a flat buffer lie, if not in memory of its own. Each call may be NULL; it
 * gives zeroed memory for `floats` floats that lasts longer than the flat buffer, and 0, or -1 with
 * a reason. `flat` may give NULL. */
struct cmn_block_memory {
    void *self;
    int (*flat)(void *self, size_t floats, float **memory);
    /* On the CPU: for the weights, in common to the ranks of a node; *first says whether this rank
     * is the one to fill it. */
    int (*weights)(void *self, size_t floats, float **memory, int *first);
};

/* Collective if calls of `memory` are, else local. Lists the tensors of net and moves its
 * gradients, with what they hold, into the flat buffer; also their weights where there is memory
 * for them. The network must stay where it is until cmn_gradients_close. `memory` may be NULL. */
void cmn_gradients_open(struct cmn_gradients *g, struct cmn_net *net,
                        const struct cmn_block_memory *memory);

/* Local. Takes what lies in the flat buffer away from the network again: its pointers become
 * NULL, so that Darknet does not free parts of the buffer. */
void cmn_gradients_close(struct cmn_gradients *g);

/* ---- an update ---- */

/* Local. Sets scale, rate and decay of each gradient for an update in which `images` of all ranks
 * count; rate and decay as Darknet gives them to its layers' updates. */
void cmn_gradients_rates(struct cmn_gradients *g, int images, float rate, float decay);

/* Local, not blocking. On a GPU alone: all weights are updated by Adam's rule, with `sums`, which lie
 * as the flat buffer does and become 0. As cmn_gradients_rates(). */
void cmn_gradients_adam(struct cmn_gradients *g, float *sums, int images, float rate, float decay);

/* ---- non-finite gradients on a GPU ---- */

/* Local, not blocking. Asks the GPU whether the first `upto` floats of the flat buffer, but for
 * those of the last call since a cmn_gradients_gpu_checked(), are finite as they are after what
 * Darknet has asked for so far. */
void cmn_gradients_gpu_check(struct cmn_gradients *g, size_t upto);

/* Local, blocking. The number of the first tensor that was not finite since the last call, or
 * -1. */
int cmn_gradients_gpu_checked(struct cmn_gradients *g);

/* The same answer later: ask is not blocking, and asks about all that was queued before; answer blocks
 * until the GPU has come there. */
void cmn_gradients_gpu_ask(struct cmn_gradients *g);
int cmn_gradients_gpu_answer(struct cmn_gradients *g);

/* Local, blocking. Of the weights of each gradient, on a GPU: a hash of their bits; returns the
 * number of the first tensor whose weights hold NaN or infinities, or -1. */
int cmn_gradients_gpu_hash(const struct cmn_gradients *g, uint64_t *hash);

/* ---- copies of all tensors of a kind; local, blocking ---- */

/* From the GPU to the host (pull), and from the host to the GPU (push). Nothing to do where the
 * network trains on the CPU. */
void cmn_gradients_pull(const struct cmn_gradients *g, enum cmn_tensor_kind kind);
void cmn_gradients_push(const struct cmn_gradients *g, enum cmn_tensor_kind kind);

/* Floats of all tensors of a kind. */
size_t cmn_gradients_floats(const struct cmn_gradients *g, enum cmn_tensor_kind kind);

/* Copies the tensors of a kind, one behind the other in the order of the list, to memory for
 * cmn_gradients_floats(); and back. Includes pull and push. */
void cmn_gradients_pack(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float *to);
void cmn_gradients_unpack(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                          const float *from);

/* Local. Darknet divides the squares of a batch by their count less this. */
double cmn_gradients_variance_less(void);

/* Local; on a GPU not blocking. Multiplies all rolling statistics, where Darknet updates them. NULL:
 * by 1. */
void cmn_gradients_scale_statistics(const struct cmn_gradients *g,
                                    const struct cmn_rolling_factor *factor);

/* Local, not blocking. On a GPU alone: multiplies the gradients of a layer. */
void cmn_gradients_scale_layer(const struct cmn_gradients *g, int layer, float factor);

/* ---- inside engine/ ---- */

/* Local. Lists the tensors of net in g. */
void cmn_gradients_list(struct cmn_gradients *g, struct cmn_net *net);

/* Tensors start at multiples of this many floats: a cache line, and a whole vector register. */
enum { CMN_FLAT_ALIGN = 16 };
_Static_assert(CMN_METRICS % CMN_FLAT_ALIGN == 0,
               "the flat buffer's size must be a multiple of its alignment");

/* n floats take so many in the flat buffer. */
static inline size_t cmn_flat_padded(size_t n)
{
    return (n + CMN_FLAT_ALIGN - 1) / CMN_FLAT_ALIGN * CMN_FLAT_ALIGN;
}

/* Where a flat buffer lies, and other blocks that lie as it does. What fails ends the job. Local, except
 * open where its memory is not; on a GPU queued behind Darknet's work, and not blocking unless it says so. */
struct cmn_flat_buffer_ops {
    /* Memory for `floats` floats in g->flat, and what else goes with it. g->tensor and g->span are
     * there. */
    void (*open)(struct cmn_gradients *g, size_t floats, const struct cmn_block_memory *memory);
    /* Moves gradient t, and perhaps its weights, to `at` floats behind the begin of their block. */
    void (*move)(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at);
    /* Optional. All of them were moved. */
    void (*ready)(struct cmn_gradients *g);
    void (*close)(struct cmn_gradients *g);

    /* Zeroed memory for floats, which `release` frees. Blocking. */
    float *(*memory)(size_t floats);
    void (*release)(float *memory);
    /* Memory of the CPU that is quickly copied; likewise. */
    float *(*host_memory)(size_t floats);
    void (*host_release)(float *memory);
    void (*copy)(float *to, const float *from, size_t n);
    void (*zero)(float *x, size_t n);
    void (*scale)(float *x, float by, size_t n);
    /* From and to memory of the CPU. Blocking. */
    void (*write)(float *to, const float *host, size_t n);
    void (*read)(float *host, const float *from, size_t n);
    /* The metrics of an exchange: to it, not blocking; and out of it once it has ended, waiting for no
     * other work of a GPU. */
    void (*send_metrics)(struct cmn_gradients *g, float *to, const float *metrics);
    void (*fetch_metrics)(struct cmn_gradients *g, float *metrics, const float *from);
    /* Of each gradient: the sum of the squares of its floats in `block`, in double; g->exchange.weights:
     * of its weights, also where these lie in no block (NULL). The order of the additions depends on
     * the tensor's size alone. Blocking. */
    void (*squares)(struct cmn_gradients *g, const float *block, double *sum);
    /* On a GPU alone: the CPU's are loops over tensors (base/reduce.h). */
    /* to[i] = a[i] + by * b[i], for n floats; `to` may be one of them. */
    void (*combine)(float *to, const float *a, float by, const float *b, size_t n);
    /* The number of the first tensor whose floats in `block` are not all finite, or -1. Blocking. */
    int (*nonfinite)(const struct cmn_gradients *g, const float *block);
    /* The update of all weights by g->scale, rate and decay. With s the sums, for each weight w: u =
     * scale * s + velocity + decay * w; w += rate * u; velocity = momentum * u; s = 0. Without
     * velocity (NULL) s becomes momentum * u. */
    void (*sgd)(struct cmn_gradients *g, float *velocity, float *sums, float momentum);
    /* Likewise by Adam's rule, with the moments of the network. */
    void (*adam)(struct cmn_gradients *g, float *sums);
};
extern const struct cmn_flat_buffer_ops cmn_flat_buffer_cpu, cmn_flat_buffer_gpu;

#endif
