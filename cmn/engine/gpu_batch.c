#include "engine/gpu_batch.h"

#ifdef GPU

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/darknet_tree.h"
#include "mpi/device.h"

enum { PLACES = CMN_GPU_PLACES, QUESTIONS = 4 };
enum state { FREE, FILLED_NOW, AHEAD, COMPUTES };

struct place {
    enum state is;
    size_t number; /* AHEAD: the batch's number */
    float *locked; /* page-locked: input, then labels */
    /* On the GPU. Those of the place that computes are also the network's. */
    float *input, *truth;
    /* Events: both copies have ended; Darknet's stream has computed with them. NULL: never yet. */
    void *sent, *used;
};

struct question {
    struct cmn_device_mail mail;
    float *host, *sum;
    size_t n;
};

static struct {
    void *stream; /* NULL: nothing is open */
    int device;
    struct place place[PLACES], *computes;
    /* Floats of a micro-batch, which is the size of each place. */
    size_t inputs, truths;
    int has_places; /* 1: the places have memory; 0: Darknet copies */
    size_t numbers, taken;
    struct question question[QUESTIONS];
    int questions;
    struct cmn_device_mail for_loss;
} batch;

/* Protects the states and numbers of the places. A thread fills a place without holding it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;

/* ---- memory ---- */

/* Called with the lock held. Returns a place in this state, of several the one that a loader filled
 * first, or NULL. */
static struct place *oldest(enum state is)
{
    struct place *found = NULL;

    for (int i = 0; i < PLACES; i++) {
        struct place *p = &batch.place[i];
        if (p->is == is && (!found || p->number < found->number)) {
            found = p;
        }
    }
    return found;
}

/* Called by the main thread with the lock held. */
static void await_loaders(void)
{
    while (oldest(FILLED_NOW)) {
        pthread_cond_wait(&filled, &lock);
    }
}

/* Frees the memory of the places, except the GPU memory that the network uses. */
static void free_places(void)
{
    for (int i = 0; i < PLACES; i++) {
        struct place *p = &batch.place[i];
        if (p != batch.computes) {
            cmn_device_free(p->input);
            cmn_device_free(p->truth);
        }
        cmn_device_host_free(p->locked);
        p->input = p->truth = p->locked = NULL;
        p->is = FREE;
    }
}

static int memory_of_places(void)
{
    for (int i = 0; i < PLACES; i++) {
        struct place *p = &batch.place[i];
        if (cmn_device_host_memory(&p->locked, batch.inputs + batch.truths) ||
            (p != batch.computes &&
             (cmn_device_memory(&p->input, batch.inputs) ||
              cmn_device_memory(&p->truth, batch.truths ? batch.truths : 1)))) {
            return -1;
        }
    }
    return 0;
}

/* Allocates the places for a new size. The network's own memory becomes that of the place that
 * computes. If the GPU has no memory left for the places, the training runs without them. */
static void make_places(float *input, float *truth, size_t inputs, size_t truths)
{
    pthread_mutex_lock(&lock);
    await_loaders();
    if (!batch.stream) {
        cmn_device_need(cudaGetDevice(&batch.device), "cudaGetDevice");
        batch.stream = cmn_device_stream_open();
        batch.computes = &batch.place[0];
    }
    free_places();
    batch.inputs = inputs;
    batch.truths = truths;
    batch.has_places = !memory_of_places();
    if (!batch.has_places) {
        free_places();
        cmn_warn_here("trains without two micro-batches ahead on the GPU, which is slower: %.200s",
                      cmn_reason());
    }
    batch.computes->input = input;
    batch.computes->truth = truth;
    batch.computes->is = COMPUTES;
    pthread_mutex_unlock(&lock);
}

void cmn_gpu_batch_close(void)
{
    pthread_mutex_lock(&lock);
    await_loaders();
    if (batch.stream) {
        size_t numbers = batch.numbers;
        free_places();
        for (int i = 0; i < PLACES; i++) {
            cmn_device_event_close(batch.place[i].sent);
            cmn_device_event_close(batch.place[i].used);
        }
        for (int i = 0; i < QUESTIONS; i++) {
            cmn_device_mail_close(&batch.question[i].mail);
        }
        cmn_device_mail_close(&batch.for_loss);
        cmn_device_stream_close(batch.stream);
        /* Numbers continue, so that a batch of the last network is never taken for one of the
         * next. */
        memset(&batch, 0, sizeof batch);
        batch.numbers = numbers;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- to the GPU ---- */

/* Starts the copy of the place's page-locked memory to the GPU. It runs behind the last kernel that
 * reads the place's GPU memory, and in parallel with all later work. */
static void send(struct place *p)
{
    if (p->used) {
        cmn_device_after(batch.stream, p->used);
    }
    cmn_device_copy_beside(batch.stream, p->input, p->locked, batch.inputs, 0, &p->sent);
    if (batch.truths) {
        cmn_device_copy_beside(batch.stream, p->truth, p->locked + batch.inputs, batch.truths, 0,
                               &p->sent);
    }
}

/* Called with the lock held. Returns the place of the batch that is taken now, or NULL. Frees the
 * places of earlier batches, which the trainer has thrown away. */
static struct place *sent_ahead(void)
{
    struct place *p;

    while ((p = oldest(AHEAD)) && p->number < batch.taken) {
        p->is = FREE;
    }
    return p && p->number == batch.taken ? p : NULL;
}

int cmn_gpu_batch_send(struct network *net, struct cmn_host_floats input,
                       struct cmn_host_floats truth)
{
    float **of_input, **of_truth;
    struct place *p;

    cmn_tree_gpu_batch(net, &of_input, &of_truth);
    if (!batch.stream || *of_input != batch.computes->input || *of_truth != batch.computes->truth ||
        input.n != batch.inputs || truth.n != batch.truths) {
        make_places(*of_input, *of_truth, input.n, truth.n);
    }
    if (!batch.has_places) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    p = sent_ahead();
    batch.taken = 0;
    if (!p) {
        /* Nobody took a batch that is still ahead when no place is free. */
        while (!(p = oldest(FREE)) && !(p = oldest(AHEAD))) {
            pthread_cond_wait(&filled, &lock);
        }
        p->is = FILLED_NOW;
        pthread_mutex_unlock(&lock);
        cmn_device_await(p->sent);
        memcpy(p->locked, input.data, input.n * sizeof *p->locked);
        memcpy(p->locked + input.n, truth.data, truth.n * sizeof *p->locked);
        send(p);
        pthread_mutex_lock(&lock);
    }
    cmn_device_record(&batch.computes->used, cmn_device_stream());
    cmn_device_after(cmn_device_stream(), p->sent);
    batch.computes->is = FREE;
    batch.computes = p;
    p->is = COMPUTES;
    *of_input = p->input;
    *of_truth = p->truth;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    return 1;
}

void cmn_gpu_batch_take(size_t number)
{
    batch.taken = number;
}

/* ---- a loader's thread ---- */

/* Returns the images of a micro-batch if the rows have the sizes of one and there are enough of
 * them, else 0. */
static size_t rows_of(struct cmn_host_rows input, struct cmn_host_rows truth)
{
    size_t n = input.each ? batch.inputs / input.each : 0;

    return n * input.each == batch.inputs && n * truth.each == batch.truths && n <= input.n &&
                   n <= truth.n
               ? n
               : 0;
}

static float *gather(float *to, struct cmn_host_rows rows, size_t n)
{
    for (size_t i = 0; i < n; i++, to += rows.each) {
        memcpy(to, rows.row[i], rows.each * sizeof *to);
    }
    return to;
}

size_t cmn_gpu_batch_ahead(struct cmn_host_rows input, struct cmn_host_rows truth)
{
    struct place *p;
    size_t n, number;

    pthread_mutex_lock(&lock);
    n = batch.has_places ? rows_of(input, truth) : 0;
    p = n ? oldest(FREE) : NULL;
    if (p) {
        p->is = FILLED_NOW;
    }
    pthread_mutex_unlock(&lock);
    if (!p) {
        return 0;
    }
    cmn_device_need(cudaSetDevice(batch.device), "cudaSetDevice");
    cmn_device_await(p->sent);
    gather(gather(p->locked, input, n), truth, n);
    send(p);
    pthread_mutex_lock(&lock);
    number = p->number = ++batch.numbers;
    p->is = AHEAD;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    return number;
}

/* ---- back to the host ---- */

float *cmn_gpu_batch_memory(size_t n)
{
    cmn_device_mail_room(&batch.for_loss, n);
    return batch.for_loss.locked;
}

int cmn_gpu_batch_ask(const float *device, float *host, size_t n, float *sum)
{
    struct question *q = &batch.question[batch.questions];

    if (!batch.stream || batch.questions == QUESTIONS) {
        return 0;
    }
    cmn_device_mail_room(&q->mail, n);
    q->host = host;
    q->sum = sum;
    q->n = n;
    batch.questions++;
    cmn_device_mail_ask(&q->mail, cmn_device_stream(), device, n);
    return 1;
}

void cmn_gpu_batch_answer(struct network *net)
{
    if (!batch.questions) {
        return;
    }
    cmn_status_compute("forward on the GPU");
    cmn_device_await(batch.question[batch.questions - 1].mail.arrived); /* and so have the others */
    for (int i = 0; i < batch.questions; i++) {
        const struct question *q = &batch.question[i];
        memcpy(q->host, q->mail.locked, q->n * sizeof *q->host);
        if (q->sum) {
            *q->sum = sum_array(q->host, (int)q->n);
        }
    }
    batch.questions = 0;
    cmn_tree_add_losses(net);
}

#endif
