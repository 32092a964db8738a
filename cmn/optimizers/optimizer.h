/* The optimizer of a training on several ranks: an update policy (update_policy.h), and buckets of
 * gradients that are exchanged while backward still computes. */
#ifndef CMN_OPTIMIZER_H
#define CMN_OPTIMIZER_H

#include <stddef.h>

#include "optimizers/update_policy.h"

/* Local, the same on all ranks. Before the gradients are moved to the flat buffer: chooses the
 * policy, ends the job where options contradict each other, and sets o->communicator, which
 * cmn_gradient_exchange_open is to be given. t, options, c and self must outlive o. `adam`: Darknet updates
 * by Adam's rule. `own`: a key of the cfg that only Darknet's own update knows, or NULL. */
void cmn_optimizer_plan(struct cmn_optimizer *o, const struct cmn_topology *t,
                        const struct cmn_options *options, const struct cmn_communicator *c,
                        void *self, int adam, const char *own);

/* Local, after the plan. Blocks as large as the flat buffer that an open optimizer has beside the
 * gradients and the weights, where this rank computes the micro-batches [first, end) of a step. One
 * that the ranks of a node have in common counts on each of them. */
int cmn_optimizer_blocks(const struct cmn_optimizer *o, int first, int end);

/* Collective, blocking. g must stay where it is until close; `layers` of the network. */
void cmn_optimizer_open(struct cmn_optimizer *o, struct cmn_gradients *g, int layers);

/* Collective, blocking, once, with cmn_exact: sums over so many micro-batches of all ranks, in their
 * order. */
void cmn_optimizer_add_in_order(struct cmn_optimizer *o, int micro_batches);

/* Collective, with cmn_exact, between two steps. Rank r has the micro-batches [first[r], first[r + 1]).
 * Blocks where that needs more shared memory. */
void cmn_optimizer_divide(struct cmn_optimizer *o, const int *first);

/* Local, with cmn_exact. The flat buffer holds the gradient of this rank's next micro-batch: it is
 * added up with its metrics, and becomes 0. That of a step's last one stays there until the update. */
void cmn_optimizer_after_micro_batch(struct cmn_optimizer *o, const float *metrics);

/* Collective, blocking. All ranks have the same weights now, and what else is kept begins from
 * them. */
void cmn_optimizer_begin(struct cmn_optimizer *o);

/* Local. How gradients are exchanged, for the first line of a training: what gradients
 * become on their way, and what else is asked for. */
void cmn_optimizer_describe(const struct cmn_optimizer *o, char *text, size_t bytes);

/* Collective in order, not blocking. Backward has done layer i in the last micro-batch of a
 * step, whose gradients are not looked at any more until the update. */
void cmn_optimizer_after_backward(struct cmn_optimizer *o, int i);

/* Local, not blocking. Makes progress in exchanges that are under way. */
void cmn_optimizer_poll(struct cmn_optimizer *o);

/* Local, blocking. On a GPU: backward has ended there, where an update waits for it at all. What is
 * under way makes progress meanwhile. */
void cmn_optimizer_finish_backward(struct cmn_optimizer *o);

/* Collective, blocking. The update of a step with `images` of all ranks; `skip`: its gradients are
 * thrown away, on all ranks. Updates, or says in *rule what Darknet's update is to use. Returns 1
 * when o->metrics holds sums over all ranks, and 0 when they come in a later step. */
int cmn_optimizer_update(struct cmn_optimizer *o, struct cmn_rule *rule, int images, int skip);

/* Collective, after each update, Darknet's own included. Blocks where a mean of the weights is due,
 * or `synchronise` asks for it: then all ranks have the same weights. Returns as
 * cmn_optimizer_update. */
int cmn_optimizer_after_update(struct cmn_optimizer *o, int synchronise);

/* Collective; blocks at the choice alone. The step took so many seconds on this rank. Returns why
 * the size of buckets was chosen, in the step in which it is, and else NULL. */
const char *cmn_optimizer_step_took(struct cmn_optimizer *o, double seconds);

/* Local. Whether all ranks have the same weights. */
int cmn_optimizer_synchronised(const struct cmn_optimizer *o);

/* Collective, blocking. Waits for what is under way, without using it, so that the state can be
 * read. */
void cmn_optimizer_pause(struct cmn_optimizer *o);

/* Local, after a pause. Entry i of what a restart needs besides weights and flat buffer, in the
 * host's memory. */
enum cmn_state_owner cmn_optimizer_state(struct cmn_optimizer *o, int i, struct cmn_state *state);

/* Local. Whether an update leaves the same weights on all ranks. */
int cmn_optimizer_replicates(const struct cmn_optimizer *o);

/* Local, where it does, after a pause. The momentum that an update leaves in the flat buffer, or that
 * a checkpoint is to name so: this rank has floats `first` to first + n - 1 of it behind `data`, and
 * zeros elsewhere; `copies` ranks have each float, an equal share of it; `whole`: each rank has all
 * of it, undivided. */
struct cmn_momentum_part {
    float *data;
    size_t first, n;
    int copies, whole;
};
struct cmn_momentum_part cmn_optimizer_momentum(struct cmn_optimizer *o);

/* Local. Whether the state lists the momentum. */
int cmn_optimizer_momentum_apart(const struct cmn_optimizer *o);

/* Local, blocking. What cmn_optimizer_state() and cmn_optimizer_momentum() listed was filled: the
 * GPU gets it. */
void cmn_optimizer_restored(struct cmn_optimizer *o);

/* Local, after a state was restored. Stop requests among its metrics are those of another run. */
void cmn_optimizer_forget_stop_requests(struct cmn_optimizer *o);

/* Collective, blocking while something is under way. */
void cmn_optimizer_close(struct cmn_optimizer *o);

#endif
