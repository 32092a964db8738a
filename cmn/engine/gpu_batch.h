/* A micro-batch on its way to the GPU while another one computes, and what its forward pass leaves
 * there for the host. One network of the process trains. Local; what fails ends the job, and
 * without CUDA nothing is sent. It takes CMN_GPU_PLACES micro-batches of page-locked memory, and one less
 * on the GPU beside the network's own. */
#ifndef CMN_GPU_BATCH_H
#define CMN_GPU_BATCH_H

#include <stddef.h>

struct network;

/* Of the micro-batch that computes, of the next one of the step, and of the next step's first one.
 * When a loader is early its batch takes the second, until its forerunner computes. */
enum { CMN_GPU_PLACES = 3 };

/* n floats of the host. */
struct cmn_host_floats {
    const float *data;
    size_t n;
};

/* n rows of `each` floats. */
struct cmn_host_rows {
    float *const *row;
    size_t n, each;
};

/* Blocking in the first micro-batch and where its size changes: takes memory. Else not blocking, once
 * a copy of two micro-batches before has ended. The network's input and labels on the GPU become
 * others, to which copies of these two come before what Darknet queues next; Darknet frees those
 * that the network has. Returns 1; 0 without CUDA, and where memory is missing, which a line says: the
 * caller copies then. */
int cmn_gpu_batch_send(struct network *net, struct cmn_host_floats input,
                       struct cmn_host_floats truth);

/* Thread-safe; blocks until an earlier copy from the same place has ended. What fails returns 0: the main
 * thread will say it. A loader has these rows: the first of them, as many as a
 * micro-batch has, begin to travel. Returns their number; 0: they do not, as there is no memory yet,
 * or for images of another size. */
size_t cmn_gpu_batch_ahead(struct cmn_host_rows input, struct cmn_host_rows truth);

/* What is sent next is what has that number. 0: it has none. */
void cmn_gpu_batch_take(size_t number);

/* Not blocking. Asks for n floats of the GPU's as they are behind what Darknet has queued. Returns 0
 * where the caller has to copy them: without CUDA, and where too many are asked for. */
int cmn_gpu_batch_ask(const float *device, float *host, size_t n, float *sum);

/* Blocking, where something was asked for: it is at `host` then, and its sum in *sum, unless that is
 * NULL; the network's loss is theirs. */
void cmn_gpu_batch_answer(struct network *net);

/* Blocking. The network, if any, keeps the memory that it has. */
void cmn_gpu_batch_close(void);

#endif
