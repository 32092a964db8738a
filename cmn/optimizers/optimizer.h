/* The optimizer of a training on several ranks: it drives an update policy (update_policy.h) and
 * exchanges buckets of gradients while backward still computes. */
#ifndef CMN_OPTIMIZER_H
#define CMN_OPTIMIZER_H

#include <stddef.h>

#include "optimizers/update_policy.h"

/* Local; call it with the same arguments on all ranks, before the gradients move to the flat
 * buffer. Chooses the policy and sets o->communicator, which cmn_gradient_exchange_open() must be
 * given. Ends the job if cmn_overlap=on was given and c cannot exchange during backward. t,
 * options, c and self must outlive o. `adam`: Darknet updates by Adam's rule. `own`: a key of the
 * cfg that only Darknet's own update implements, or NULL. */
void cmn_optimizer_plan(struct cmn_optimizer *o, const struct cmn_topology *t,
                        const struct cmn_options *options, const struct cmn_communicator *c,
                        void *self, int adam, const char *own);

/* Local, after cmn_optimizer_plan(). Returns how many blocks of the flat buffer's size an open
 * optimizer needs besides the gradients and the weights, if this rank computes the micro-batches
 * [first, end) of a step. A block that the ranks of a node share counts once for each of them. */
int cmn_optimizer_blocks(const struct cmn_optimizer *o, int first, int end);

/* Collective, blocking. g must stay at its address until cmn_optimizer_close(). `layers` is the
 * network's number of layers. */
void cmn_optimizer_open(struct cmn_optimizer *o, struct cmn_gradients *g, int layers);

/* Collective, blocking; called once, with cmn_exact. From now on gradients are summed over
 * `micro_batches` micro-batches of all ranks, in the order of their numbers. */
void cmn_optimizer_add_in_order(struct cmn_optimizer *o, int micro_batches);

/* Collective, with cmn_exact, between two steps. Assigns the micro-batches [first[r], first[r + 1])
 * to rank r. Blocks if a rank then needs more shared memory. */
void cmn_optimizer_divide(struct cmn_optimizer *o, const int *first);

/* Local, with cmn_exact. The flat buffer holds the gradient of this rank's next micro-batch, which
 * is accumulated together with `metrics`; the flat buffer then becomes 0. The gradient of a step's
 * last micro-batch stays in it until the update. */
void cmn_optimizer_after_micro_batch(struct cmn_optimizer *o, const float *metrics);

/* Collective, blocking. All ranks have the same weights now; what the policy and the average keep
 * is initialised from them. */
void cmn_optimizer_begin(struct cmn_optimizer *o);

/* Local. Writes how gradients are exchanged (their type on the wire, clipping, overlap) to `text`,
 * for the first line of a training. */
void cmn_optimizer_describe(const struct cmn_optimizer *o, char *text, size_t bytes);

/* Collective in order, not blocking. Backward has computed layer i in the last micro-batch of a
 * step; nothing reads the gradients of that layer again before the update. */
void cmn_optimizer_after_backward(struct cmn_optimizer *o, int i);

/* Local, not blocking. Advances the exchanges that are under way. */
void cmn_optimizer_poll(struct cmn_optimizer *o);

/* Local. On a GPU it blocks until backward has ended there, if the update needs that, and advances
 * exchanges meanwhile. */
void cmn_optimizer_finish_backward(struct cmn_optimizer *o);

/* Collective, blocking. Updates the weights after a step of `images` images of all ranks, or sets
 * in *rule what Darknet's update must use. With `skip` all ranks discard the step's gradients.
 * Returns 1 if o->metrics now holds sums over all ranks, and 0 if they arrive in a later step. */
int cmn_optimizer_update(struct cmn_optimizer *o, struct cmn_rule *rule, int images, int skip);

/* Local. Darknet's update leaves this layer out: its gradients stay, a part of the sum on each
 * rank. */
void cmn_optimizer_leaves_out(struct cmn_optimizer *o, int layer);

/* Collective, after each update, Darknet's own included. Blocks if a mean of the weights is due or
 * `synchronise` asks for it; then all ranks have the same weights. Returns the same as
 * cmn_optimizer_update(). */
int cmn_optimizer_after_update(struct cmn_optimizer *o, int synchronise);

/* Collective; blocks only in the step in which the bucket size is chosen. `seconds` is how long the
 * step took on this rank. Returns the reason of the choice in that step, and NULL in all others. */
const char *cmn_optimizer_step_took(struct cmn_optimizer *o, double seconds);

/* Local. Returns whether all ranks have the same weights. */
int cmn_optimizer_synchronised(const struct cmn_optimizer *o);

/* Collective, blocking. Waits for the exchange that is under way without using its result, so that
 * the state can be read. */
void cmn_optimizer_pause(struct cmn_optimizer *o);

/* Local, after cmn_optimizer_pause(). Sets *state to entry i of what a restart needs besides the
 * weights and the flat buffer, in the host's memory, and returns its owner. */
enum cmn_state_owner cmn_optimizer_state(struct cmn_optimizer *o, int i, struct cmn_state *state);

/* Local. Returns whether an update leaves the same weights on all ranks. */
int cmn_optimizer_replicates(const struct cmn_optimizer *o);

/* Local, after cmn_optimizer_pause(), where cmn_optimizer_replicates(). Returns where the momentum
 * lies that an update leaves in the flat buffer, or that a checkpoint names as if it did. This rank
 * has its floats [first, first + n) at `data`, and zeros in place of all others. `copies` ranks
 * have each of these floats, an equal share of its value; with `whole` each rank has the full
 * values. */
struct cmn_momentum_part {
    float *data;
    size_t first, n;
    int copies, whole;
};
struct cmn_momentum_part cmn_optimizer_momentum(struct cmn_optimizer *o);

/* Local. Returns whether cmn_optimizer_state() lists the momentum. */
int cmn_optimizer_momentum_apart(const struct cmn_optimizer *o);

/* Local, blocking. Copies to the GPU what the caller has written to the memory that
 * cmn_optimizer_state() and cmn_optimizer_momentum() gave. */
void cmn_optimizer_restored(struct cmn_optimizer *o);

/* Local, after a state was restored. Removes the stop requests from its metrics: they belong to
 * another run. */
void cmn_optimizer_forget_stop_requests(struct cmn_optimizer *o);

/* Collective. Blocks while an exchange is under way. */
void cmn_optimizer_close(struct cmn_optimizer *o);

#endif
