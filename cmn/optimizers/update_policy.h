/* When gradients are exchanged, and what the weights are updated with.
 *
 * In every step (the usual way): gradients are summed, and the update follows. They hold the momentum, too, of which each
 * rank keeps its share (docs/architecture.md).
 * Pure: where a lossy compressor, double buffering or LARS (lars.h) needs the gradient alone, the momentum is kept apart, and the update is done
 * here: for each weight w, with g the sum over all ranks and v what momentum kept, u = g + v + decay * w; w += rate *
 * u; v = momentum * u.
 * So it is for cmn_nonfinite=skip, which may have to throw a gradient away, and keep the momentum.
 * Double buffering: the sum of a step is waited for in the next one's update. The first update does nothing, and the gradients
 * of the last step are dropped. Source: ChainerMN's double-buffering optimizer (Akiba et al., 2017).
 * Local steps (local_steps.c): each rank updates by itself, and every k steps weights and momentum are averaged; with double
 * buffering weights alone, one period late.
 * Source: Stich, "Local SGD Converges Fast and Communicates Little", 2019; with the momentum averaged, too: Yu, Jin,
 * Yang, "On the Linear Speedup Analysis of Communication Efficient Momentum SGD", 2019. */
#ifndef CMN_SCHEDULE_H
#define CMN_SCHEDULE_H

#include <stddef.h>

#include "engine/gradients.h"
#include "optimizers/bucket_tuner.h"

struct cmn_state;
struct network;

struct cmn_policy {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    /* As gradients are opened with, without step where that cannot be; and as it is. */
    struct cmn_communicator communicator;
    const struct cmn_communicator *whole;
    void *self;
    float *own; /* memory for x where the communicator has none */
    struct cmn_gradients *gradients;
    int separate_momentum, delayed; /* stale: double buffering */
    int adam;
    long local; /* steps between averages; 1: gradients are summed in every step */

    float metrics[CMN_METRICS]; /* in: this rank's; out: the sums, if update() says so */

    float *velocity; /* pure: what momentum kept, as the block lies */
    /* Double buffering and local steps: what is exchanged, in memory of the communicator. */
    struct cmn_exchange x;
    struct cmn_span *tensor;
    int under_way, arrived; /* x was begun, and not waited for; its sums are there, and not used */

    long since;                 /* local: steps since the ranks had the same weights */
    float waiting[CMN_METRICS]; /* local: sums of this rank's metrics since then */
    /* Local: weights and momentum at the last average; with double buffering what was given to the exchange under way. */
    float *common, *mine;

    size_t *final; /* floats of the block that are final when backward has done layer i */
    int layers;
    struct cmn_bucket_tuner tuner;
    size_t bucket, begun; /* of this step: floats of a bucket, floats begun */
    double updating;      /* seconds of the last update that were no exchange */
};

/* Local. Before the gradients are moved: decides how, and sets communicator, which they are to be opened with. `adam`
 * says that Darknet updates by Adam's rule. */
void cmn_policy_plan(struct cmn_policy *s, const struct cmn_topology *t,
                     const struct cmn_options *o, const struct cmn_communicator *c, void *self,
                     int adam);

/* Collective, blocking. g must stay where it is until close. 0, or -1 with a reason. */
int cmn_policy_open(struct cmn_policy *s, struct cmn_gradients *g, int layers);

/* Collective, blocking. All ranks have the same weights now, and what else is kept begins anew from them. */
int cmn_policy_begin(struct cmn_policy *s);

/* Local. One clause on how gradients are exchanged, for the first line of a training; "" for the usual way. */
void cmn_policy_describe(const struct cmn_policy *s, char *text, size_t bytes);

/* Collective in order, not blocking. Backward has done layer i in the last pass of a step. */
int cmn_policy_after_backward(struct cmn_policy *s, int i);

/* Local. Moves on what is exchanged in the background. */
int cmn_policy_poll(struct cmn_policy *s);

/* What an update is made with. */
struct cmn_rule {
    int batch;
    float rate, momentum, decay;
    int done; /* the update has happened already */
};

/* Collective, blocking. Gives the rule of the update, or updates; `images` of all ranks were in the step. 1 when metrics holds
 * sums, 0 when they come in a later step, -1 with a reason. */
int cmn_policy_update(struct cmn_policy *s, struct cmn_rule *rule, int images);

/* In place of cmn_policy_update(), on all ranks: the gradients of this step are thrown away. With double buffering those of
 * the step before update the weights, as they would have; otherwise nothing changes. As cmn_policy_update(). */
int cmn_policy_skip(struct cmn_policy *s, struct cmn_rule *rule, int images);

/* Collective, blocking where an average is due or `settle` asks for it: after it all ranks have the same weights. As
 * cmn_policy_update(). To be called after each update. */
int cmn_policy_after_update(struct cmn_policy *s, int settle);

/* Local. Whether all ranks have the same weights. */
int cmn_policy_synchronised(const struct cmn_policy *s);

/* Collective, blocking. Waits for what is under way, without using it, so that the state can be read. */
int cmn_policy_pause(struct cmn_policy *s);

/* Local, after a pause. Entry i of what a restart needs besides weights and gradients; 0 when there are no more. */
int cmn_policy_state(struct cmn_policy *s, int i, struct cmn_state *state);

/* Collective while something is under way: that is waited for. */
void cmn_policy_close(struct cmn_policy *s);

/* schedule_check.c, for schedule.c. Local. Why what the options ask for does not go together; `why`: the communicator's reason not to
 * exchange in the background, or NULL. 0, or -1 with a reason. */
int cmn_policy_refuse(const struct cmn_policy *s, const char *why);

/* Local, after a state was taken over: wishes to stop that have come with its metrics are those of another run. */
void cmn_policy_forget_stop_requests(struct cmn_policy *s);

/* For local_steps.c: makes x of `copies` of the gradients, one behind the other, with new memory; waits for x if it is
 * under way. */
int cmn_policy_exchange(struct cmn_policy *s, int copies);
int cmn_policy_complete(struct cmn_policy *s);

/* local_steps.c, for schedule.c: memory; and the average (as cmn_policy_after_update). */
int cmn_local_sgd_open(struct cmn_policy *s);
void cmn_local_sgd_begin(struct cmn_policy *s);
int cmn_local_sgd_average(struct cmn_policy *s, int settle);

#endif
