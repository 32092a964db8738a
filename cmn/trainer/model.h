/* The network that is trained, on this rank: its gradients in the flat buffer, its optimizer, and
 * what all ranks together have of it. */
#ifndef CMN_MODEL_H
#define CMN_MODEL_H

#include "engine/gradients.h"
#include "engine/net.h"
#include "optimizers/optimizer.h"
#include "trainer/feed.h"
#include "trainer/session.h"

struct cmn_model {
    const struct cmn_session *session;
    struct cmn_net *net;
    char name[256];           /* of the cfg, without folder and extension */
    char cfg[256];            /* the same with its extension: names end at their first dot */
    char *cfg_text;           /* its lines, without blanks and comments */
    struct cmn_net_size size; /* as the cfg says */
    int weights_given;        /* a weights file was read */
    int attached;             /* the gradients lie in the flat buffer */
    struct cmn_gradients gradients;
    struct cmn_optimizer optimizer;
    float *own_statistics, *own_weights; /* this rank's, while the network has those of all ranks */
};

/* Local, the same on all ranks. Ends the job where keys do not go together, or not with this network;
 * else plans the optimizer of its training. */
void cmn_model_plan(const struct cmn_session *s, const struct cmn_net *net,
                    struct cmn_optimizer *o);

/* Collective, blocking. After the network was read from `cfg`: moves the gradients to the flat
 * buffer, compares the network over the ranks, and gives all of them rank 0's weights. */
void cmn_model_attach(struct cmn_model *m, const struct cmn_feed *f, const char *cfg);

/* Collective while something is under way, else local. Undoes attach. */
void cmn_model_detach(struct cmn_model *m);

/* Collective, blocking. The network gets what all ranks together have: merged statistics of batch
 * normalisation, and the mean of weights that differ. Nothing may train until
 * cmn_model_restore_own() (local) gives each rank its own again. */
void cmn_model_swap_in_averages(struct cmn_model *m);
/* The same with what is validated: the moving average of the weights and statistics where there is
 * one (cmn_ema). */
void cmn_model_swap_in_validated(struct cmn_model *m);
void cmn_model_restore_own(struct cmn_model *m);

#endif
