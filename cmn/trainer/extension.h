/* The state of a training step, and the extensions of a training.
 *
 * A step is the loop of trainer/step.c: forward and backward of Darknet, then the exchange and the
 * update of the optimizer. Whatever else happens in a step is an extension: one file with a table
 * of calls and with its own state. trainer/extensions.c lists all extensions in their order. */
#ifndef CMN_EXTENSION_H
#define CMN_EXTENSION_H

#include "trainer/best.h"
#include "trainer/feed.h"
#include "trainer/model.h"
#include "trainer/session.h"

struct cmn_row;
struct cmn_step;
struct cmn_nonfinite_policy;
struct cmn_batch_norm;
struct cmn_checkpointing;

/* Each call may be NULL. `self` is what `open` has returned. Calls of one name run in the order of
 * the list, and are the same on all ranks. */
struct cmn_extension {
    const char *name;
    /* Collective, when the network is attached. Returns the state, or NULL: the extension is off
     * in this training, and none of its other calls is made. Without this call the extension is
     * always on, and `self` is the step. */
    void *(*open)(struct cmn_step *p);
    void (*close)(void *self);

    /* Collective. The images of the first micro-batch of this run are in the network. */
    void (*begin)(void *self, struct cmn_step *p);
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
    /* The step is counted, and the weights are synchronised where that is due. Says in p->due what
     * follows. */
    void (*after_step)(void *self, struct cmn_step *p);
    /* Collective. A checkpoint is due, or the training has ended. The ranks have not synchronised
     * for that end: this is the state in which a run without it would continue. */
    void (*save)(void *self, struct cmn_step *p);
    /* Collective. Tells of the step what is due. */
    void (*report)(void *self, struct cmn_step *p);
    /* Collective. A row of the report is made of the steps since the last one: fills its columns.
     * With cmn_patience the validation may end the training. */
    void (*fill_row)(void *self, struct cmn_step *p, struct cmn_row *row);
    /* The step is told and saved; Darknet loads the next images. */
    void (*after_report)(void *self, struct cmn_step *p);
};

enum { CMN_EXTENSIONS_AT_MOST = 20 };

/* Sums since the last row of the report. */
struct cmn_row_sums {
    double loss, right, images;     /* over all ranks */
    double compute, exchange, load; /* seconds of this rank */
    double since;                   /* clock: when they began */
    long steps;
};

/* The extensions say here what is due after a step. */
struct cmn_due {
    int row;        /* a row of the report, and not only because the training ends */
    int validation; /* the row has a validation */
    int scheduled;  /* that validation is due, and not only because the training ends */
    int checkpoint; /* a checkpoint, and not only because the training ends */
};

/* Extensions keep this through a restart: a checkpoint contains it. */
struct cmn_kept {
    int resumed;            /* the training began from a checkpoint */
    long steps;             /* steps of the runs that this one resumes */
    double began;           /* cmn_clock() at the start, minus the time of those runs */
    long row_at;            /* iteration of the last row that was due */
    size_t row_seen;        /* images that all ranks had seen at that row */
    int row_due;            /* a row is due as soon as sums have arrived */
    int verification_due;   /* is due as soon as all ranks have the same weights */
    int validation_pending; /* a stop request came before the validation of the last row */
    struct cmn_best best;
};

struct cmn_step {
    struct cmn_session *session;
    struct cmn_model *model;
    struct cmn_feed *feed;
    struct {
        const struct cmn_extension *is;
        void *self;
    } extension[CMN_EXTENSIONS_AT_MOST]; /* those that are on */
    int extensions;
    struct cmn_nonfinite_policy *nonfinite;  /* state of that extension; NULL: not attached yet */
    struct cmn_batch_norm *norm;             /* cmn_sync_bn on several ranks, or NULL */
    struct cmn_checkpointing *checkpointing; /* NULL until network and backup folder are known */

    struct cmn_kept kept;
    long done;  /* steps of this run */
    long first; /* the iteration before its first step */
    struct cmn_row_sums sums;
    float interrupts, terminations; /* SIGINT and SIGTERM that exchanges have brought so far */
    int checkpoint_lost;            /* the last checkpoint of the training could not be written */

    /* The current step. */
    int micro_batch;   /* number of the current micro-batch on this rank, from 0 */
    size_t seen;       /* images that all ranks had seen before the step */
    float loss, right; /* of the last micro-batch on this rank */
    int skip;          /* its gradients are thrown away, on all ranks */
    int fused;         /* the communicator has updated, and not Darknet */
    int epoch_ended;   /* after it all ranks had seen the whole list once more */
    struct cmn_due due;

    float mean_loss, lr; /* of the last step; the loss over all ranks */
    int updated;         /* since the last cmn_step_after_batch() */

    /* Times (cmn_clock()). */
    double began, micro_batch_began, exchange_began;
    double layer_ended; /* end of the layer before; 0: no micro-batch runs */
    double ended;       /* end of the last step, or of a save or validation after it */
    double computing;   /* seconds in micro-batches since the first step, and their number */
    long computed;
};

/* Makes one call of all extensions that are on, in their order (trainer/extensions.c). */
#define CMN_EXTENSIONS(p, call, ...)                                           \
    for (int i_ = 0; i_ < (p)->extensions; i_++) {                             \
        if ((p)->extension[i_].is->call) {                                     \
            (p)->extension[i_].is->call((p)->extension[i_].self, __VA_ARGS__); \
        }                                                                      \
    }

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

/* Local. Whether this step is the last one of the training. */
static inline int cmn_step_ends_training(const struct cmn_step *p)
{
    return cmn_net_training_ended(p->model->net);
}

/* Local. Whether the sums of the exchange are not used, because one did not fit into 16 bits. */
static inline int cmn_step_is_discarded(const struct cmn_step *p)
{
    return p->model->optimizer.too_large >= 0;
}

#endif
