/* The trained network on this rank: its gradients in the flat buffer, its optimizer, and the merged
 * state of all ranks. */
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
    char name[256];           /* name of the cfg, without folder and extension */
    char cfg[256];            /* the same with its extension: `name` ends at the first dot */
    char *cfg_text;           /* its lines, without blanks and comments */
    struct cmn_net_size size; /* as in the cfg */
    int weights_given;        /* a weights file was read */
    int attached;             /* the gradients lie in the flat buffer */
    struct cmn_gradients gradients;
    struct cmn_optimizer optimizer;
    float *own_statistics, *own_weights; /* this rank's own, while the network has merged values */
};

/* Local, the same on all ranks. Plans the optimizer of the training; ends the job if two keys, or a
 * key and this network, do not go together. */
void cmn_model_plan(const struct cmn_session *s, const struct cmn_net *net,
                    struct cmn_optimizer *o);

/* Collective, blocking. After the network was read from `cfg`: moves the gradients to the flat
 * buffer, compares the network over the ranks, and gives all of them rank 0's weights. */
void cmn_model_attach(struct cmn_model *m, const struct cmn_feed *f, const char *cfg);

/* Collective while an exchange is under way, else local. Undoes cmn_model_attach(). */
void cmn_model_detach(struct cmn_model *m);

/* Local. Returns whether there is a validation list of a kind that this network can answer; with
 * cmn_validate=off there is none. */
int cmn_model_validates(const struct cmn_model *m);

/* Collective, blocking. Gives the network the merged state of all ranks: the averaged statistics of
 * batch normalisation, and the mean of weights that differ. Nothing may train until
 * cmn_model_restore_own() (local) has restored each rank's own state. */
void cmn_model_swap_in_averages(struct cmn_model *m);
/* Does the same with the values that are validated: with cmn_ema, the moving averages of weights
 * and statistics. */
void cmn_model_swap_in_validated(struct cmn_model *m);
void cmn_model_restore_own(struct cmn_model *m);

#endif
