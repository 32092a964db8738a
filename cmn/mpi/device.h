/* device: the GPU of this rank, its memory, streams and copies. All functions are local, and do not
 * block, unless a comment says otherwise. */
#ifndef CMN_DEVICE_H
#define CMN_DEVICE_H

#include <stddef.h>

#include "mpi/topology.h"

/* Returns whether this is a build with CUDA. */
int cmn_device_built(void);

/* Returns the number of GPUs that this process may use; 0 without CUDA, driver or device. */
int cmn_device_count(void);

/* Collective over all ranks, blocking. `device` is the number of the GPU that Darknet uses here, or
 * -1 for the CPU. Sets t->device to it, and t->shares_gpus. Ends the job if some ranks use a GPU
 * and some do not, or if two ranks of a node use the same GPU (unless CMN_DEBUG_SHARE_GPUS is
 * set). Slices of a GPU (MIG) count as GPUs. */
void cmn_device_agree(struct cmn_topology *t, int device);

/* ---- for builds with CUDA ----
 *
 * An error ends the job, unless a function returns it. Code for all builds calls only what is marked:
 * a build without CUDA does not define it, and never comes there, as its topology has no device. */
#ifdef GPU
#define CMN_ON_GPU
#else
#define CMN_ON_GPU __attribute__((weak))
#endif

/* Collective over the ranks of the node, blocking. Returns the number of the GPU that this rank is to
 * use: one next to the cores that it may use, where it is bound to one NUMA node; else that of its
 * number within the node. 0 without GPUs. */
CMN_ON_GPU int cmn_device_choose(const struct cmn_topology *t);

/* Returns the GPU of one rank of a node, of those that it sees, given the NUMA nodes of all ranks
 * and GPUs (-1: none, or not known). First the ranks, in their order, each take a GPU of their own
 * NUMA node, then the others one of those that are left; ranks beyond the GPUs share them. */
int cmn_device_near(int rank, const int *near_rank, int ranks, const int *near_gpu, int gpus);

/* Returns the first number of a GPU's compute capability, or 0 if it is not known. */
CMN_ON_GPU int cmn_device_capability(int device);

/* Returns 0 if `code`, a cudaError_t, is cudaSuccess. Otherwise records "<what>: <CUDA's text>" as
 * the reason and returns -1. cmn_device_need(), and CMN_CUDA() for a call, end the job then. */
int cmn_device_check(int code, const char *what);
void cmn_device_need(int code, const char *what);
#define CMN_CUDA(function, ...) cmn_device_need(function(__VA_ARGS__), #function)

/* Blocking. Allocate zeroed memory for `floats` floats, of the current GPU or page-locked of the
 * CPU; the caller frees it with the function below. Return 0, or -1 with a reason. */
CMN_ON_GPU int cmn_device_memory(float **memory, size_t floats);
CMN_ON_GPU void cmn_device_free(float *memory);
CMN_ON_GPU int cmn_device_host_memory(float **memory, size_t floats);
CMN_ON_GPU void cmn_device_host_free(float *memory);

/* Blocking. Page-locks memory of the CPU that the caller has allocated otherwise, until
 * cmn_device_unlock(), which the caller must call before it frees the memory. Returns 0, or -1 with
 * a reason. */
CMN_ON_GPU int cmn_device_lock(float *memory, size_t floats);
CMN_ON_GPU void cmn_device_unlock(float *memory);

/* Returns the stream on which Darknet queues its work, a cudaStream_t. */
CMN_ON_GPU void *cmn_device_stream(void);

/* Blocking. Copy n floats after all work that Darknet has queued. */
CMN_ON_GPU void cmn_device_write(float *device, const float *host, size_t n);
CMN_ON_GPU void cmn_device_read(float *host, const float *device, size_t n);

/* Queued after Darknet's work. Copy n floats within the GPU's memory, or zero them. */
void cmn_device_copy(float *device, const float *from_device, size_t n);
void cmn_device_zero(float *device, size_t n);

/* Returns a new stream beside Darknet's, a cudaStream_t, whose work goes before Darknet's kernels:
 * other ranks wait for it. cmn_device_stream_close() takes NULL, too. */
CMN_ON_GPU void *cmn_device_stream_open(void);
CMN_ON_GPU void cmn_device_stream_close(void *stream);

/* Records *event (a cudaEvent_t, created if it is NULL) on the stream. cmn_device_event_close()
 * takes NULL, too. */
void cmn_device_record(void **event, void *stream);
CMN_ON_GPU void cmn_device_event_close(void *event);

/* Return a new event that keeps the time when it is reached; and the seconds between two such
 * events, which the GPU has reached. */
void *cmn_device_timer(void);
double cmn_device_seconds(void *from, void *to);

/* Return whether the GPU has reached the event; after an error cmn_device_query() returns -1 with a
 * reason. To CUDA "not yet" is an error, which Darknet's next check, or a kernel's, would take for
 * its own: these functions clear it. */
int cmn_device_query(void *event);
CMN_ON_GPU int cmn_device_reached(void *event);

/* Blocking. Wait until the GPU has reached the event (NULL: there is nothing to wait for), or all
 * work that Darknet has queued. cmn_device_wait() calls work(self) meanwhile, again and again, at
 * least once, unless work is NULL. */
void cmn_device_await(void *event);
CMN_ON_GPU void cmn_device_wait(void (*work)(void *self), void *self);

/* Make all work that is queued on `stream` from now on wait for an event, or for the work that is
 * on `other` now. */
void cmn_device_after(void *stream, void *event);
CMN_ON_GPU void cmn_device_follow(void *stream, void *other);

/* Queued on `stream`. Copies n floats to page-locked memory of the CPU (`to_host`), or from there
 * to the GPU. Records *event after the copy. */
CMN_ON_GPU void cmn_device_copy_beside(void *stream, float *to, const float *from, size_t n,
                                       int to_host, void **event);

/* A mail takes floats to the GPU, or back, through page-locked memory, and the host does not wait
 * for the GPU's other work. Zeroed, it has no room. */
struct cmn_device_mail {
    float *locked;
    size_t room;
    void *arrived; /* event: the last copy has ended; NULL: there was none */
};

/* Blocking. Makes room for `floats` floats, unless there is room for as many. */
void cmn_device_mail_room(struct cmn_device_mail *m, size_t floats);
void cmn_device_mail_close(struct cmn_device_mail *m);

/* Blocks only until the floats that were sent before have arrived. Copies n floats to `device`,
 * after the work that Darknet has queued, and before what it queues next. */
void cmn_device_mail_send(struct cmn_device_mail *m, float *device, const float *host, size_t n);

/* Asks for n floats as they are after the work that `stream` has. */
void cmn_device_mail_ask(struct cmn_device_mail *m, void *stream, const float *device, size_t n);

/* Blocking. Returns the floats that were asked for, which are valid until the next call for this
 * mail. */
const float *cmn_device_mail_answer(struct cmn_device_mail *m);

#endif
