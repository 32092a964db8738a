/* What a tool asks of Darknet: the GPU, and what a cfg needs. */
#ifndef CMN_PLAN_H
#define CMN_PLAN_H

#include <stddef.h>

/* Local. As -i N on the command line: this process computes on that GPU, or, with -1, on the
 * CPU. */
void cmn_plan_device(int device);

/* What a cfg needs on this rank. */
struct cmn_plan {
    int batch;        /* images of a micro-batch, of this rank */
    int subdivisions; /* micro-batches of a step */
    int tensors;      /* that are exchanged in a step */
    size_t floats;    /* their size */
    size_t flat;      /* floats of the flat gradient buffer, padding and metrics included */
    int outputs;      /* values that the network predicts for an image */
    /* Memory of the host, in bytes. What the layers have for an image of a micro-batch grows with
     * the micro-batch, the workspace with the pixels alone. */
    size_t per_image, workspace;
    size_t weights; /* weights, gradients, and all that depends on neither */
    size_t sample;  /* an image and its labels, as loaders hand them over */
    int threads;    /* that load images */
    /* Micro-batches in page-locked memory, on their way to a GPU; one less lie there beside the
     * network's own. 0 on the CPU. */
    int places;
    /* By which factor random=1 lets images of the input grow at most; 1 without. */
    double grows;
};

struct cmn_net;

/* Local. Bytes that this process has allocated. */
size_t cmn_plan_allocated(void);

/* Local, before the gradients are moved to the flat buffer. Outputs and memory of a network, before
 * which the process had allocated so many bytes. */
struct cmn_plan cmn_plan_net(const struct cmn_net *net, size_t allocated);

/* Collective in a job, blocking. Builds the network of a cfg, shows it to look(), and frees it again;
 * hooks/ reads the keys of its [net] meanwhile and opens the communicator. A cfg that Darknet refuses
 * ends the job. */
struct cmn_plan cmn_plan_cfg(const char *cfg, void (*look)(struct cmn_net *net, void *context),
                             void *context);

#endif
