/* From Darknet's layers to lists of tensors, and the flat buffer in which all gradients lie.
 * Of a training, the only file that knows Darknet's layers; who else knows them, or the network, stands in
 * docs/architecture.md, and structure.bats holds all others to it. */
#ifndef CMN_GRADIENTS_H
#define CMN_GRADIENTS_H

#include <stddef.h>

#include "communicators/communicator.h"

struct cmn_net;
struct cmn_nonfinite;

enum cmn_tensor_kind {
    CMN_GRADIENT,  /* *_updates: summed over the ranks in every step */
    CMN_WEIGHT,    /* weights, biases, scales */
    CMN_STATISTIC, /* rolling mean and variance of batch normalisation */
    CMN_MOMENT     /* what an optimizer keeps besides the gradient (Adam) */
};

struct cmn_tensor {
    enum cmn_tensor_kind kind;
    int layer;        /* index in the network */
    const char *part; /* "" or the sub-layer, e.g. "input_layer." */
    const char *name; /* field of struct layer */
    float **at;       /* the network's own pointer, so that the tensor can be moved */
    size_t n;         /* floats */
    /* of a CMN_GRADIENT: */
    int rows;                /* of the matrix that it is, 0: none */
    float **weight;          /* the network's pointer to what it is the gradient of */
    const float *rate_scale; /* the layer's factor of the learning rate */
    int decays;              /* whether weight decay applies */
};

/* Sums that ride behind the gradients in the same exchange. */
enum cmn_metric {
    CMN_LOSS,
    CMN_RIGHT,
    CMN_IMAGES,
    CMN_INTERRUPTS,
    CMN_TERMINATIONS, /* ranks that got SIGINT, SIGTERM */
    CMN_METRICS = 16
};

struct cmn_gradients {
    struct cmn_tensor *tensor; /* all kinds; gradients from the last layer to the first */
    int tensors;
    float *flat;      /* gradients in backward order, each padded, then the metrics; then, where the
                              communicator can step, their weights in the same places */
    int flat_is_ours; /* and not the communicator's */
    int on_gpu; /* then the flat buffer is the GPU's, and the metrics is copied around the exchange */
    float *metrics;          /* CMN_METRICS floats behind the gradients */
    float *bad, *bad_on_gpu; /* on a GPU, of each tensor: not 0 when its gradient was not finite */
    struct cmn_span *span;   /* the gradients, unpadded */
    float *rate, *decay;     /* of each gradient, for a step */
    double share;            /* this rank's images of a pass, by which its statistics count; 0: as
                              much as any other's */
    struct cmn_exchange exchange;
};

/* Collective when the communicator c (with its self) has memory of its own; c may be NULL. Lists the
 * tensors of net by layer type and moves its gradients (with what they hold) to one flat buffer; when c can step, also
 * their weights to memory that the ranks of a node have in common. The network must stay where it is until cmn_gradients_close, and c open.
 * 0, or -1 and a reason. */
int cmn_gradients_open(struct cmn_gradients *g, struct cmn_net *net,
                       const struct cmn_communicator *c, void *self);

/* Local. Takes what lies in the flat buffer away from the network again (its pointers become NULL), so that
 * free_network does not free parts of the flat buffer. */
void cmn_gradients_close(struct cmn_gradients *g);

/* What a recurrent layer carries from one step to the next: for each sequence n floats. The network's. */
struct cmn_recurrent_state {
    int layer, which; /* of the layer's own */
    float *at;        /* in the host's memory */
    float *device;    /* where the layer takes it from; NULL: from there */
    size_t n, sequences;
};

/* Local. Entry i of it; 0 when there are no more. */
int cmn_recurrent_state_at(const struct cmn_net *net, int i, struct cmn_recurrent_state *hidden);

/* Local, blocking. All of it, from the GPU to the host's memory, or back; nothing to do on the CPU. 0, or -1 with a reason. */
enum cmn_recurrent_direction { CMN_RECURRENT_READ, CMN_RECURRENT_WRITE };
int cmn_recurrent_state_copy(const struct cmn_net *net, enum cmn_recurrent_direction way);

/* Local, blocking. Sets all of it to 0, as in a network that was just read. Returns what it was, which the caller
 * frees by restoring it; NULL with a reason. */
float *cmn_recurrent_state_clear(const struct cmn_net *net);
/* 0, or -1 with a reason. */
int cmn_recurrent_state_restore(const struct cmn_net *net, float *saved);

/* Local. As Darknet's trainers do it where a sequence begins: the first `sequences` sequences' state becomes 0. */
void cmn_recurrent_state_reset(struct cmn_net *net, int sequences);

/* Local. Layers and tensors in words, one a line: two networks with the same text can have each other's tensors. The caller frees; NULL
 * with a reason when memory is short. */
char *cmn_gradients_describe(const struct cmn_gradients *g, const struct cmn_net *net);

/* Local. n floats take so many in the flat buffer: tensors start at multiples of a cache line. */
size_t cmn_gradients_padded(size_t n);

/* Collective, blocking. Gradients and metrics become their sum over all ranks. 0, or -1 with a reason. */
int cmn_gradients_sum(struct cmn_gradients *g, const struct cmn_communicator *c, void *self);

/* Local. Sets rate and decay of each gradient for an update in which `images` of all ranks count; rate and decay as Darknet
 * gives them to its layers' updates. */
void cmn_gradients_rates(struct cmn_gradients *g, int images, float rate, float decay);

/* Collective, blocking. Sum and update in one, by a communicator that can step. `images` of all ranks were
 * in the step; rate, momentum and decay as Darknet gives them to its layers' updates. */
int cmn_gradients_step(struct cmn_gradients *g, const struct cmn_communicator *c, void *self,
                       int images, float rate, float momentum, float decay);

/* Collective, blocking. Compares the tensors, the layers and then `options` (lines of text: all
 * else that must be equal) with rank 0's.
 * 0, or -1 on each rank that differs, with a reason that names the first difference; the others
 * return 0 and meet the end of the job in their next collective call. */
int cmn_gradients_compare(const struct cmn_gradients *g, struct cmn_net *net, const char *options,
                          const struct cmn_topology *t);

/* Collective, blocking. Gives every rank rank 0's tensors of all kinds, `seen` and `t`. */
int cmn_gradients_broadcast(const struct cmn_gradients *g, struct cmn_net *net,
                            const struct cmn_topology *t);

/* Collective, blocking. The statistics become those of all ranks' images: means weighted by the ranks' shares; variances, too, plus
 * the spread of the ranks' means about the common one (law of total variance). 0, or -1 with a reason. */
int cmn_gradients_average_statistics(const struct cmn_gradients *g, const struct cmn_topology *t);

/* Collective, blocking (gradients_verify.c). Compares the bits of all weights over the ranks. 0, or -1 with a reason (the same on every
 * rank) that names the ranks whose weights are not those of most, and the first tensor in which they differ. *bad
 * becomes the first layer's tensor with a weight that is no number; its name is NULL when there is none. */
int cmn_gradients_verify(const struct cmn_gradients *g, const struct cmn_net *net,
                         const struct cmn_topology *t, struct cmn_nonfinite *bad);

#endif
