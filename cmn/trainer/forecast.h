/* Forecasts the memory that a training of a cfg needs on a rank, and the keys that it refuses. The
 * tools ask this beforehand, and the training itself when it begins, so both say the same. */
#ifndef CMN_FORECAST_H
#define CMN_FORECAST_H

#include <stddef.h>

#include "engine/plan.h"
#include "optimizers/optimizer.h"
#include "trainer/session.h"

struct cmn_forecast {
    struct cmn_plan plan;
    struct cmn_optimizer optimizer; /* planned, but not open */
};

/* Collective, blocking. Builds the network of a cfg as a training would and frees it again;
 * Darknet's table of layers is not printed. A cfg or key that a training refuses ends the job with
 * the same message. Afterwards s is the session of a training (s->command). */
struct cmn_forecast cmn_forecast_cfg(struct cmn_session *s, const char *cfg);

/* Local. Returns the bytes of this process that are in memory. */
double cmn_forecast_resident(void);

struct cmn_memory_question {
    const struct cmn_session *session;
    const struct cmn_plan *plan;
    const struct cmn_optimizer *optimizer; /* planned */
    const char *cfg;
    int batch, subdivisions;    /* as in the cfg */
    double program;             /* bytes of this process in memory before the network was built */
    double lines;               /* lines of the lists of images */
    double images, image_bytes; /* different images; bytes of all of them decoded; 0: unknown */
};

/* Bytes by purpose. */
struct cmn_memory_need {
    double program; /* with MPI and OpenBLAS */
    double weights; /* with gradients, and what optimizer and checkpoint keep besides */
    double layers;  /* outputs, their gradients, workspace */
    double lists;
    double images; /* loaded ahead, on their way to a GPU, or in a loader thread */
    double cache;  /* a rank's part of the node's decoded images; uses only memory that is left */
    double on_gpu; /* GPU memory: images that are sent before their turn */
};

struct cmn_memory_answer {
    struct cmn_memory_need need; /* each part is that of the rank that needs most of it */
    double all, room;            /* bytes that a rank needs, without the cache, and has at least */
    int fits;                    /* smallest subdivisions with which it fits; 0: none */
    char fault[512];             /* what to do if it does not fit; "": it does */
};

/* Collective, blocking. Returns the same answer on all ranks. */
struct cmn_memory_answer cmn_forecast_memory(const struct cmn_memory_question *q);

/* Local. Returns a text like "1.5 GiB" or "20 MiB", which is valid until the eighth call after this
 * one. */
const char *cmn_memory_text(double bytes);

#endif
