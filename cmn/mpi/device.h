/* The GPU of this rank: which one, its memory, streams and copies. A build without CUDA has
 * these functions, too: they fail with a reason. */
#ifndef CMN_DEVICE_H
#define CMN_DEVICE_H

#include <stddef.h>

#include "mpi/topology.h"

/* Local. Whether this is a build with CUDA. */
int cmn_device_built(void);

/* Local. GPUs that this process may use, 0 without CUDA, driver or device. */
int cmn_device_count(void);

/* Local. The first number of a GPU's compute capability, 0 where it is not known. */
int cmn_device_capability(int device);

/* Collective over all ranks, blocking. `device` is the number of the GPU that Darknet uses here,
 * or -1 for the CPU; it becomes t->device. Ends the job when some ranks use a GPU and some do
 * not, or when two ranks of a node use the same one (unless CMN_DEBUG_SHARE_GPUS is set). */
void cmn_device_agree(struct cmn_topology *t, int device);

/* Local, blocking. Zeroed memory for `floats` floats on the current GPU; the caller frees it with
 * cmn_device_free(). 0, or -1 with a reason. */
int cmn_device_memory(float **memory, size_t floats);
void cmn_device_free(float *memory);

/* The same for page-locked memory of the CPU. */
int cmn_device_host_memory(float **memory, size_t floats);
void cmn_device_host_free(float *memory);

/* Local, blocking. Page-locks memory of the CPU that the caller has from elsewhere, until
 * cmn_device_unlock(), which comes before the memory is given back. 0, or -1 with a reason. */
int cmn_device_lock(float *memory, size_t floats);
void cmn_device_unlock(float *memory);

/* Local. The stream on which Darknet queues its work, a cudaStream_t. */
void *cmn_device_stream(void);

/* Local, blocking. Copy n floats after all work that Darknet queued before. 0, or -1 with a
 * reason. */
int cmn_device_write(float *device, const float *host, size_t n);
int cmn_device_read(float *host, const float *device, size_t n);

/* Local, not blocking, queued behind Darknet's work. Copies n floats; makes them 0. 0, or -1 with a
 * reason. */
int cmn_device_copy(float *device, const float *from_device, size_t n);
int cmn_device_zero(float *device, size_t n);

/* A few floats, to the GPU and back through page-locked memory; the host does not wait for the GPU.
 * What returns an int: 0, or -1 with a reason. Local. */
struct cmn_device_mail;

/* Blocking. For at most so many floats; close takes NULL, too. */
int cmn_device_mail_open(struct cmn_device_mail **mail, size_t floats);
void cmn_device_mail_close(struct cmn_device_mail *mail);

/* Not blocking, once the last that was sent has arrived. n floats come to `device` behind what Darknet
 * has queued, and before what it queues next. */
int cmn_device_mail_send(struct cmn_device_mail *m, float *device, const float *host, size_t n);

/* Blocking. Reads n floats that nothing on the GPU is still to write; waits for no other work. */
int cmn_device_mail_fetch(struct cmn_device_mail *m, float *host, const float *device, size_t n);

/* Not blocking. Asks for n floats as they are behind what Darknet has queued; they become 0. */
int cmn_device_mail_ask(struct cmn_device_mail *m, float *device, size_t n);

/* Blocking. What was asked for, until the next call; NULL with a reason. */
const float *cmn_device_mail_answer(struct cmn_device_mail *m);

/* Local, blocking. Waits for all work that Darknet queued, and calls work(self) meanwhile, at
 * least once. 0, or -1 with a reason. */
int cmn_device_wait(void (*work)(void *self), void *self);

/* A stream beside Darknet's, a cudaStream_t. Local. 0, or -1 with a reason; close takes NULL, too. */
int cmn_device_stream_open(void **stream);
void cmn_device_stream_close(void *stream);

/* Local, not blocking. What is queued on `stream` from here on comes behind all that lies on `other`
 * now. 0, or -1 with a reason. */
int cmn_device_follow(void *stream, void *other);

/* Local, not blocking, queued on `stream`. Copies n floats to page-locked memory of the CPU
 * (`to_host`), or from there to the GPU. *event (a cudaEvent_t, made where it is NULL) is reached
 * behind the copy. 0, or -1 with a reason; close takes NULL, too. */
int cmn_device_copy_beside(void *stream, float *to, const float *from, size_t n, int to_host,
                           void **event);
void cmn_device_event_close(void *event);

/* Local, blocking. Waits for all that lies on the stream. 0, or -1 with a reason. */
int cmn_device_wait_for(void *stream);

/* Local, not blocking. 1 when the GPU has reached the event (a cudaEvent_t), 0 when not yet, -1 with
 * a reason. "Not yet" is an error to CUDA, which Darknet's next check, or a kernel's, would take for
 * its own; so whoever polls calls this. */
int cmn_device_reached(void *event);

/* Local. 0 when `code`, a cudaError_t, is cudaSuccess; else records "<what>: <CUDA's text>" and
 * returns -1. */
int cmn_device_check(int code, const char *what);

#endif
