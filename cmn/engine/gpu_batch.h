/* Copies of the next micro-batches to the GPU while another one computes, and copies of the results
 * of its forward pass back to the host. Only one network of the process trains. All functions are
 * local. An error ends the job. The memory needed is that of CMN_GPU_PLACES micro-batches in
 * page-locked memory, and of CMN_GPU_PLACES - 1 on the GPU besides the network's own. */
#ifndef CMN_GPU_BATCH_H
#define CMN_GPU_BATCH_H

#include "mpi/device.h"

struct network;

/* The micro-batch that computes, the next one of the step, and the first one of the next step. A
 * batch that a loader has early takes the second place until the batch before it computes. */
enum { CMN_GPU_PLACES = 3 };

/* n floats in the host's memory. */
struct cmn_host_floats {
    const float *data;
    size_t n;
};

/* n rows of `each` floats in the host's memory. */
struct cmn_host_rows {
    float *const *row;
    size_t n, each;
};

/* Starts the copy of input and labels to the GPU. Blocks in the first micro-batch and when a size
 * changes, because it allocates memory. Otherwise it blocks only until a copy that began two
 * micro-batches earlier has ended. The network gets other buffers for its input and labels on the
 * GPU; the copies into them end before the work that Darknet queues next. Darknet frees the buffers
 * that the network has. Returns 1. Returns 0 if there is not enough memory, which a log line says:
 * then the caller copies. */
CMN_ON_GPU int cmn_gpu_batch_send(struct network *net, struct cmn_host_floats input,
                                  struct cmn_host_floats truth);

/* Thread-safe; blocks until an earlier copy from the same place has ended. A loader calls it with
 * its rows: the first of them, as many as a micro-batch has, start their copy to the GPU. Returns
 * the number of this batch. Returns 0 if nothing is copied: there is no memory yet, no place is
 * free, or the images have another size. */
CMN_ON_GPU size_t cmn_gpu_batch_ahead(struct cmn_host_rows input, struct cmn_host_rows truth);

/* Says that the next cmn_gpu_batch_send() sends the batch with that number. 0: it has no number. */
CMN_ON_GPU void cmn_gpu_batch_take(size_t number);

/* Blocking where it allocates. Returns page-locked memory of n floats, which is valid until the next
 * call. */
CMN_ON_GPU float *cmn_gpu_batch_memory(size_t n);

/* Not blocking. Queues a copy of n floats from the GPU, behind what Darknet has queued;
 * cmn_gpu_batch_answer() delivers them to `host`. Returns 0 if the caller has to copy, because too
 * many copies are pending. */
CMN_ON_GPU int cmn_gpu_batch_ask(const float *device, float *host, size_t n, float *sum);

/* Blocking if something was asked for. Copies the floats to `host`, and their sum to *sum unless it
 * is NULL, and updates the network's loss from the losses of its layers. */
CMN_ON_GPU void cmn_gpu_batch_answer(struct network *net);

/* Blocking. Frees everything, except the memory that the network uses now. */
CMN_ON_GPU void cmn_gpu_batch_close(void);

#endif
