/* The state of a training step, and the extensions of a training.
 *
 * A step is the loop of trainer/step.c: forward and backward of Darknet, then the exchange and the
 * update of the optimizer. Whatever else happens in a step is an extension: one file with a table
 * of calls and with its own state. trainer/extensions.c lists all extensions in their order. */
#ifndef CMN_EXTENSION_H
#define CMN_EXTENSION_H

#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/sequences.h"
#include "trainer/session.h"

struct cmn_row;
struct cmn_step;
struct cmn_nonfinite_policy;
struct cmn_batch_norm;

/* Each call may be NULL. `self` is what `open` has returned. Calls of one name run in the order of
 * the list, and are the same on all ranks. */
struct cmn_extension {
    const char *name;
    /* Collective, when the network is attached. Returns the state, or NULL: the extension is off
     * in this training, and none of its other calls is made. Without this call the extension is
     * always on, and `self` is the step. */
    void *(*open)(struct cmn_step *p);
    void (*close)(void *self);

    void (*before_step)(void *self, struct cmn_step *p);
    void (*before_micro_batch)(void *self, struct cmn_step *p);
    /* Darknet has computed that layer, forward or backward. */
    void (*after_layer)(void *self, struct cmn_step *p, int backward, int layer);
    /* The exchanges under way have made progress; the next layer begins. */
    void (*before_layer)(void *self, struct cmn_step *p);
    void (*after_micro_batch)(void *self, struct cmn_step *p);
    /* Backward of all micro-batches has ended. Fills its part of the optimizer's metrics, which are
     * zero. Sums over all ranks are not known yet. With cmn_nonfinite=skip, which makes the
     * optimizer begin no exchange earlier, it may set p->skip, after the ranks have agreed on it. */
    void (*before_exchange)(void *self, struct cmn_step *p);
    /* The exchange has ended, and the update if it was part of it. */
    void (*after_exchange)(void *self, struct cmn_step *p);
    /* The optimizer's metrics hold sums over all ranks. With double buffering and local SGD they
     * come later than the exchange of their step. */
    void (*after_sums)(void *self, struct cmn_step *p);
    /* Darknet's own update has run, where it is needed. With local SGD ranks have weights of their
     * own here. */
    void (*after_update)(void *self, struct cmn_step *p);
    /* The step is counted, and the weights are synchronised where that is due. */
    void (*after_step)(void *self, struct cmn_step *p);
    /* A row of the report is made of the steps since the last one: fills its columns. Local. */
    void (*fill_row)(void *self, struct cmn_step *p, struct cmn_row *row);
};

enum { CMN_EXTENSIONS_AT_MOST = 16 };

/* Sums since the last row of the report. */
struct cmn_row_sums {
    double loss, right, images;     /* over all ranks */
    double compute, exchange, load; /* seconds of this rank */
    double since;                   /* clock: when they began */
    long steps;
};

struct cmn_step {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_feed *feed;
    struct cmn_sequences sequences; /* of a text, with cmn_exact */
    struct {
        const struct cmn_extension *is;
        void *self;
    } extension[CMN_EXTENSIONS_AT_MOST]; /* those that are on */
    int extensions;
    struct cmn_nonfinite_policy *nonfinite; /* state of that extension; NULL: not attached yet */
    struct cmn_batch_norm *norm;            /* cmn_sync_bn on several ranks, or NULL */

    long done;    /* steps of this run */
    long first;   /* the iteration before its first step */
    long earlier; /* steps of the runs that this one resumes */
    struct cmn_row_sums sums;

    /* The current step. */
    int micro_batch;   /* number of the current micro-batch on this rank, from 0 */
    size_t seen;       /* images that all ranks had seen before the step */
    float loss, right; /* of the last micro-batch on this rank */
    int skip;          /* its gradients are thrown away, on all ranks */
    int fused;         /* the communicator has updated, and not Darknet */

    float mean_loss, lr; /* of the last step; the loss over all ranks */
    int updated;         /* since the last cmn_trainer_after_batch() */

    /* Times (cmn_clock()). */
    double began, micro_batch_began, exchange_began;
    double layer_ended; /* end of the layer before; 0: no micro-batch runs */
    double ended;       /* end of the last step, or of a save after it */
    double computing;   /* seconds in micro-batches since the first step, and their number */
    long computed;
};

/* Local. The number of the last step that is done, as rows and files call it. */
static inline long cmn_step_iteration(const struct cmn_step *p)
{
    return p->first + p->done;
}

/* Local. Whether the current micro-batch is the step's last one on this rank. */
static inline int cmn_step_is_last(const struct cmn_step *p)
{
    return p->micro_batch + 1 >= p->feed->share.micro_batches;
}

/* Local. Whether the sums of the exchange are not used, because one did not fit into 16 bits. */
static inline int cmn_step_is_discarded(const struct cmn_step *p)
{
    return p->model->optimizer.too_large >= 0;
}

#endif
