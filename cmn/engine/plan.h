/* What tools need from Darknet: the GPU to use, and what a cfg needs. */
#ifndef CMN_PLAN_H
#define CMN_PLAN_H

#include <stddef.h>

/* Local. Does the same as -i N on the command line: this process computes on that GPU, or on the
 * CPU if device is -1. */
void cmn_plan_device(int device);

/* What a cfg needs on this rank. */
struct cmn_plan {
    int batch;        /* images of a micro-batch, of this rank */
    int subdivisions; /* micro-batches of a step */
    int tensors;      /* exchanged in a step */
    size_t floats;    /* floats of those tensors */
    size_t flat;      /* floats of the flat gradient buffer, padding and metrics included */
    int outputs;      /* values that the network predicts for an image */
    /* The next fields are bytes of the host's memory. The layers need `per_image` bytes for each
     * image of a micro-batch. The workspace grows only with the pixels of an image. */
    size_t per_image, workspace;
    size_t weights; /* weights, gradients and all else that depends on neither batch nor pixels */
    size_t sample;  /* one image and its labels, as loaders deliver them */
    int threads;    /* threads that load images */
    /* Number of micro-batches in page-locked memory, for copies to a GPU. On the GPU there are one
     * fewer besides the network's own. 0 on the CPU. */
    int places;
    /* The largest factor by which random=1 multiplies the pixels of the input; 1 without random. */
    double grows;
};

struct cmn_net;

/* Local. Returns the bytes that malloc() has given to this process and that are not freed. */
size_t cmn_plan_allocated(void);

/* Local. Returns the outputs and the memory of a network. `allocated` is what cmn_plan_allocated()
 * returned before the network was built. Call it before cmn_gradients_open() moves the
 * gradients. */
struct cmn_plan cmn_plan_net(const struct cmn_net *net, size_t allocated);

/* Collective in a job, blocking. Builds the network of a cfg, calls look() with it, and frees it.
 * While it is built, hooks/ reads the keys of its [net] section and opens the communicator. A cfg
 * that Darknet refuses ends the job. */
struct cmn_plan cmn_plan_cfg(const char *cfg, void (*look)(struct cmn_net *net, void *context),
                             void *context);

#endif
