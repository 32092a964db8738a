/* What a training of a cfg needs on a rank: asked by the tools beforehand, and by the training itself
 * when it begins, so that both say the same. */
#ifndef CMN_FORECAST_H
#define CMN_FORECAST_H

#include <stddef.h>

#include "engine/plan.h"
#include "optimizers/optimizer.h"
#include "trainer/session.h"

struct cmn_forecast {
    struct cmn_plan plan;
    struct cmn_optimizer optimizer; /* planned, and not open */
};

/* Collective, blocking. Builds the network of a cfg as a training does and frees it again, without
 * Darknet's table of layers on the standard error. What a training refuses ends the job with the
 * training's line. The session is that of a training from here on. */
struct cmn_forecast cmn_forecast_cfg(struct cmn_session *s, const char *cfg);

/* Local. Bytes that this process has in memory. */
double cmn_forecast_resident(void);

struct cmn_memory_question {
    const struct cmn_session *session;
    const struct cmn_plan *plan;
    const struct cmn_optimizer *optimizer; /* planned */
    const char *cfg;
    int batch, subdivisions, time_steps; /* as the cfg says them */
    double program;             /* what this process had in memory before the network was built */
    double lines;               /* of the lists of images */
    double images, image_bytes; /* different images, and all of them decoded; 0: not known */
};

/* Bytes, by what takes them. */
struct cmn_memory_need {
    double program; /* with MPI and OpenBLAS */
    double weights; /* with gradients, and what the optimizer and a checkpoint keep beside them */
    double layers;  /* outputs, their gradients, workspace */
    double lists;
    double images; /* that are loaded ahead, on their way to a GPU, or in a loader thread */
    double cache;  /* a rank's part of the node's decoded images, which takes only what is left */
    double on_gpu; /* the GPU's memory, not the host's: images that are there before their turn */
};

struct cmn_memory_answer {
    struct cmn_memory_need need; /* each part is that of the rank that needs most of it */
    double all, room; /* bytes that a rank needs, without the cache, and that it has at least */
    int fits;         /* the smallest subdivisions that fits; 0: none does */
    char fault[512];  /* what to do where it does not fit; "": it does */
};

/* Collective, blocking. The same answer on all ranks. */
struct cmn_memory_answer cmn_forecast_memory(const struct cmn_memory_question *q);

/* Local. "1.5 GiB", "20 MiB"; good until the eighth call after this one. */
const char *cmn_memory_text(double bytes);

#endif
