/* The tensors of a network, and the flat gradient buffer: one block that holds all gradients, so
 * that the ranks can exchange them together.
 *
 * tensors.c lists the tensors by layer type and copies them. flat_buffer.c moves the gradients into
 * the block, which lies in the CPU's memory (flat_buffer_cpu.c) or in the GPU's
 * (flat_buffer_gpu.c). When the network trains on a GPU, a tensor has a copy on the host, which
 * Darknet uses to read and write files, and a copy on the device, which is trained. An error here
 * ends the job. */
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
    /* Values that decide what Darknet does: each rank updates its own, and after a step all ranks
     * get the mean. */
    CMN_FOLLOWED
};

struct cmn_tensor {
    enum cmn_tensor_kind kind;
    int layer;        /* index in the network */
    const char *name; /* field of struct layer */
    float **at;       /* the network's own pointer, so that the tensor can be moved */
    float **device;   /* the pointer to the GPU's copy; NULL: there is none */
    size_t n;         /* floats */
    /* The next fields belong to a CMN_GRADIENT. */
    int rows;                /* of the matrix that the gradient is; 0: it is none */
    float **weight;          /* the network's pointer to the weights of this gradient */
    const float *rate_scale; /* the layer's factor of the learning rate */
    int decays;              /* 1: weight decay applies */
    /* The GPU's update clips the weights to [-*limit, *limit]; NULL or 0: no limit. */
    const float *limit;
    float **device_weight; /* the same as `weight`, for the GPU's copy */
    /* Pointers to Adam's moments on the GPU. The moments may be NULL until the block is made. NULL:
     * the weights have no moments. */
    float **device_m, **device_v;
    /* For a CMN_STATISTIC: the factor that Darknet applies to its old value in each micro-batch. */
    double keeps;
};

/* A factor for rolling statistics. With k the `keeps` of the tensor, sum = 1 + k + ... + k^(|terms|
 * - 1): the factor is scale * k^power * sum, or scale * k^power / sum if terms is negative. */
struct cmn_rolling_factor {
    double scale;
    int power, terms;
};

/* Metrics: sums that are exchanged together with the gradients. CMN_INTERRUPTS and CMN_TERMINATIONS
 * count the ranks that got SIGINT and SIGTERM. */
enum cmn_metric {
    CMN_LOSS,
    CMN_RIGHT,
    CMN_IMAGES,
    CMN_INTERRUPTS,
    CMN_TERMINATIONS,
    CMN_METRICS = 16
};

struct cmn_flat_buffer_ops;

/* Darknet's settings for Adam; *t counts the updates, including the current one. */
struct cmn_adam {
    float b1, b2, eps;
    const int *t;
};

struct cmn_gradients {
    struct cmn_tensor *tensor; /* all kinds; gradients from the last layer to the first */
    int tensors;
    const struct cmn_flat_buffer_ops *ops; /* the CPU's or the GPU's */
    int on_gpu;            /* the block is in the GPU's memory, the metrics are in the host's */
    float *flat;           /* gradients in backward order, each padded, then the metrics */
    int flat_is_ours;      /* 1: `flat` must be freed here; 0: the communicator owns it */
    int fills_weights;     /* this rank fills the weights that the ranks of its node share */
    float *metrics;        /* CMN_METRICS floats */
    struct cmn_span *span; /* the gradients, unpadded */
    int *tensor_of;        /* for each gradient: its index in `tensor` */
    /* For each gradient, set for one update; one block. The update takes scale times the sum; scale
     * is 1 except with LARS. */
    float *scale, *rate, *decay;
    float *host_weights;             /* on a GPU: page-locked, with the layout of the flat buffer */
    struct cmn_flat_buffer_gpu *gpu; /* further state on a GPU; NULL on the CPU */
    /* Images of a micro-batch on this rank. They weight this rank's statistics in an average over
     * the ranks. 0: all ranks have the same weight. */
    double images;
    int plain_statistics; /* averages of variances ignore the spread of the ranks' means */
    struct cmn_adam adam;
    struct cmn_exchange exchange;
};

/* A caller's memory for the blocks of a flat buffer. Each function may be NULL. A function sets
 * *memory to zeroed memory for `floats` floats that lives longer than the flat buffer, and returns
 * 0, or -1 with a reason. If `flat` is NULL or sets *memory to NULL, the buffer allocates its own
 * memory. If `weights` is NULL, the weights stay where they are on the CPU. */
struct cmn_block_memory {
    void *self;
    int (*flat)(void *self, size_t floats, float **memory);
    /* Called on the CPU only: memory for the weights that the ranks of a node share; *first becomes
     * 1 on the rank that must fill it. */
    int (*weights)(void *self, size_t floats, float **memory, int *first);
};

/* Collective if functions of `memory` are, else local. Lists the tensors of net and moves its
 * gradients into the flat buffer, where they begin at 0. It also moves the weights if there is memory
 * for them (on a GPU always). The network must not move in memory until cmn_gradients_close().
 * `memory` may be NULL. */
void cmn_gradients_open(struct cmn_gradients *g, struct cmn_net *net,
                        const struct cmn_block_memory *memory);

/* Local. Detaches the network from the flat buffer: pointers into the buffer become NULL, so that
 * Darknet does not free parts of it. */
void cmn_gradients_close(struct cmn_gradients *g);

/* ---- an update ---- */

/* Local. Sets scale, rate and decay of each gradient for one update. `images` is the number of
 * images of all ranks; rate and decay are the values that Darknet passes to the updates of its
 * layers. */
void cmn_gradients_rates(struct cmn_gradients *g, int images, float rate, float decay);

/* Local, not blocking. GPU only. Updates all weights by Adam's rule from `sums`, which has the
 * layout of the flat buffer and becomes 0. images, rate and decay are those of
 * cmn_gradients_rates(). */
void cmn_gradients_adam(struct cmn_gradients *g, float *sums, int images, float rate, float decay);

/* ---- copies of all tensors of a kind; local, blocking ---- */

/* pull copies from the GPU to the host, push from the host to the GPU. They do nothing if the
 * network trains on the CPU. */
void cmn_gradients_pull(const struct cmn_gradients *g, enum cmn_tensor_kind kind);
void cmn_gradients_push(const struct cmn_gradients *g, enum cmn_tensor_kind kind);

/* Returns the number of floats of all tensors of a kind. */
size_t cmn_gradients_floats(const struct cmn_gradients *g, enum cmn_tensor_kind kind);

/* pack copies the tensors of a kind, one after the other in the order of the list, to memory for
 * cmn_gradients_floats() floats; unpack copies them back. pack begins with a pull, unpack ends with
 * a push. */
void cmn_gradients_pack(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float *to);
void cmn_gradients_unpack(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                          const float *from);

/* Local; on a GPU not blocking. Multiplies all rolling statistics by their factor, on the device
 * that trains. It does nothing if `factor` is NULL. */
void cmn_gradients_scale_statistics(const struct cmn_gradients *g,
                                    const struct cmn_rolling_factor *factor);

/* Local, not blocking. GPU only. Multiplies the gradients of a layer. */
void cmn_gradients_scale_layer(const struct cmn_gradients *g, int layer, float factor);

/* ---- inside engine/ ---- */

/* Local. Lists the tensors of net in g. */
void cmn_gradients_list(struct cmn_gradients *g, struct cmn_net *net);

/* Tensors start at multiples of this many floats: a cache line, and a whole vector register. */
enum { CMN_FLAT_ALIGN = 16 };
_Static_assert(CMN_METRICS % CMN_FLAT_ALIGN == 0,
               "the flat buffer's size must be a multiple of its alignment");

/* Returns the floats that a tensor of n floats takes in the flat buffer. */
static inline size_t cmn_flat_padded(size_t n)
{
    return (n + CMN_FLAT_ALIGN - 1) / CMN_FLAT_ALIGN * CMN_FLAT_ALIGN;
}

/* Operations on a flat buffer, and on other blocks with its layout, in the CPU's or in the GPU's
 * memory. All are local, except that open is collective if functions of `memory` are. On a GPU they
 * are queued behind Darknet's work and do not block, unless a comment says "Blocking". An error
 * ends the job. */
struct cmn_flat_buffer_ops {
    /* Sets g->flat to memory for `floats` floats, and allocates the related blocks. g->tensor and
     * g->span are allocated already. */
    void (*open)(struct cmn_gradients *g, size_t floats, const struct cmn_block_memory *memory);
    /* Moves gradient t, and its weights if there is a block for them, to `at` floats behind the
     * begin of the block. */
    void (*move)(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at);
    /* Optional. Called after all gradients were moved. */
    void (*ready)(struct cmn_gradients *g);
    void (*close)(struct cmn_gradients *g);

    /* Returns zeroed memory for floats, which `release` frees. Blocking. */
    float *(*memory)(size_t floats);
    void (*release)(float *memory);
    /* Returns zeroed memory of the CPU, page-locked if there is a GPU, which `host_release` frees.
     * Blocking. */
    float *(*host_memory)(size_t floats);
    void (*host_release)(float *memory);
    void (*copy)(float *to, const float *from, size_t n);
    void (*zero)(float *x, size_t n);
    void (*scale)(float *x, float by, size_t n);
    /* write copies from the CPU's memory to the block, read copies back. Blocking. */
    void (*write)(float *to, const float *host, size_t n);
    void (*read)(float *host, const float *from, size_t n);
    /* send_metrics copies CMN_METRICS floats into the block of an exchange and does not block.
     * fetch_metrics copies them out after the exchange has ended; it waits for no other work of a
     * GPU. */
    void (*send_metrics)(struct cmn_gradients *g, float *to, const float *metrics);
    void (*fetch_metrics)(struct cmn_gradients *g, float *metrics, const float *from);
    /* sum[i] becomes the sum of the squares of gradient i's floats in `block`, in double. If
     * `block` is g->exchange.weights the floats are the weights of gradient i, even if the weights
     * have no block (NULL). The order of the additions depends only on the tensor's size.
     * Blocking. */
    void (*squares)(struct cmn_gradients *g, const float *block, double *sum);
    /* The functions from here on exist on a GPU only: the CPU uses loops over tensors
     * (base/reduce.h). */
    /* Computes to[i] = a[i] + by * b[i] for n floats; `to` may be a or b. */
    void (*combine)(float *to, const float *a, float by, const float *b, size_t n);
    /* Returns the index of the first tensor whose floats in `block` are not all finite, or -1.
     * Blocking. */
    int (*nonfinite)(const struct cmn_gradients *g, const float *block);
    /* Queues a check for NaN and infinities of the first `upto` floats of the flat buffer. Floats
     * that were checked since the last ask() are left out. ask() ends these checks, and answer()
     * waits for them and returns the index of the first tensor that one of them marked as not
     * finite, or -1. */
    void (*check)(struct cmn_gradients *g, size_t upto);
    void (*ask)(struct cmn_gradients *g);
    int (*answer)(struct cmn_gradients *g);
    /* hash[i] becomes a hash of the bits of the weights of gradient i. Returns the index of the
     * first tensor whose weights hold NaN or infinities, or -1. Blocking. */
    int (*hash)(const struct cmn_gradients *g, uint64_t *hash);
    /* Updates all weights by g->scale, g->rate and g->decay. With s the sums, for each weight w: u
     * = scale * s + velocity + decay * w; w += rate * u; velocity = momentum * u; s = 0. If
     * velocity is NULL there is no velocity term, and s becomes momentum * u. */
    void (*sgd)(struct cmn_gradients *g, float *velocity, float *sums, float momentum);
    /* Updates all weights by Adam's rule, with the moments of the network. */
    void (*adam)(struct cmn_gradients *g, float *sums);
};
extern const struct cmn_flat_buffer_ops cmn_flat_buffer_cpu, cmn_flat_buffer_gpu;

#endif
