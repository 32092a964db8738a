#include "communicators/ordered_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "base/log.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "mpi/kernels.h"
#include "mpi/shared_window.h"
#include "mpi/shm_barrier.h"

/* A rank has fewer nodes than twice the bits of a count. A chunk of the sums is exchanged at once:
 * it bounds the memory for other ranks' nodes. A block of them stays in a cache while it is added. */
enum { NODES = 64, CHUNK = 1 << 20, BLOCK = 4096 };

/* The sum of the micro-batches [first, first + n), n a power of two that divides first. */
struct node {
    int first, n, rank;
};

struct cmn_ordered_sum {
    const struct cmn_topology *topology;
    int micro_batches;
    size_t floats;
    struct node *all; /* which all ranks have at the end of a step, in order */
    int nodes;
    int first, next, end; /* micro-batch of this rank: the step's first one, the next one */
    struct node own[NODES];
    float *memory[NODES]; /* for own[i]; NULL until it is needed */
    float *at[NODES]; /* where own[i] lies: there, or where the last micro-batch's gradient does */
    int owns;
    float *received; /* a slice of a chunk of each node of other ranks */
    float **slice;   /* of each node */
    MPI_Request *request;
    int *count, *place; /* of each rank's slice */

    /* On a GPU all above but `all` is its memory, and this is page-locked: of each node of this rank a
     * chunk, what comes from other ranks, and a chunk of the sum. */
    int on_gpu;
    float *host;

    /* In shared memory; NULL: by messages. */
    struct cmn_window *window;
    struct cmn_group group;
    uint32_t read; /* the barrier behind which all ranks have copied the last sum */
};

int cmn_ordered_sum_first(int micro_batches, int rank, int ranks)
{
    int busy = ranks < micro_batches ? ranks : micro_batches;

    return rank < busy ? (int)((long)micro_batches * rank / busy) : micro_batches;
}

static int power_below(int n)
{
    int power = 1;

    while (2 * power < n) {
        power *= 2;
    }
    return power;
}

/* The whole nodes of [at, end): each as large as its begin and the end allow. */
static void list_nodes(struct cmn_ordered_sum *s, int rank, int at, int end)
{
    while (at < end) {
        int n = 1;
        while (at % (2 * n) == 0 && at + 2 * n <= end) {
            n *= 2;
        }
        s->all[s->nodes++] = (struct node){at, n, rank};
        at += n;
    }
}

static size_t slice_begin(const struct cmn_ordered_sum *s, size_t n, int rank)
{
    return n * (size_t)rank / (size_t)s->topology->size;
}

static size_t slice_floats(const struct cmn_ordered_sum *s, size_t n, int rank)
{
    return slice_begin(s, n, rank + 1) - slice_begin(s, n, rank);
}

/* ---- where the sums lie: the CPU's memory, or the GPU's ---- */

static void require(int result)
{
    if (result) {
        cmn_fail_in("cmn_exact");
        cmn_fatal_reason();
    }
}

static float *new_memory(const struct cmn_ordered_sum *s, size_t floats)
{
    float *memory;

    if (!s->on_gpu) {
        return cmn_alloc_floats(floats);
    }
    require(cmn_device_memory(&memory, floats));
    return memory;
}

static void release(const struct cmn_ordered_sum *s, float *memory)
{
    if (s->on_gpu) {
        cmn_device_free(memory);
    } else {
        free(memory);
    }
}

static void release_host(struct cmn_ordered_sum *s)
{
    if (s->on_gpu) {
        cmn_device_host_free(s->host);
    }
    s->host = NULL;
}

/* On a GPU queued behind Darknet's work. */
static void add_on_gpu(float *into, float *const *buffer, int buffers, int away, size_t n)
{
#ifdef GPU
    struct cmn_kernel_addends from = {{NULL}};

    memcpy(from.x, buffer, (size_t)buffers * sizeof *buffer);
    require(cmn_device_check(cmn_kernel_add(into, &from, buffers, away, n, cmn_device_stream()),
                             "a kernel"));
#else
    (void)into;
    (void)buffer;
    (void)buffers;
    (void)away;
    (void)n;
#endif
}

static void add(const struct cmn_ordered_sum *s, float *into, float *const *buffer, int buffers,
                size_t n)
{
    if (s->on_gpu) {
        add_on_gpu(into, buffer, buffers, 0, n);
    } else {
        cmn_reduce(into, buffer, buffers, 0, n);
    }
}

static void add_away(const struct cmn_ordered_sum *s, float *into, float *const *buffer,
                     int buffers, size_t n)
{
    if (s->on_gpu) {
        add_on_gpu(into, buffer, buffers, 1, n);
    } else {
        cmn_reduce_away(into, buffer, buffers, n);
    }
}

static void copy(const struct cmn_ordered_sum *s, float *to, const float *from, size_t n)
{
    if (s->on_gpu) {
        require(cmn_device_copy(to, from, n));
    } else {
        memcpy(to, from, n * sizeof *to);
    }
}

/* ---- whose micro-batches ---- */

static size_t chunk_floats(const struct cmn_ordered_sum *s)
{
    return s->floats < CHUNK ? s->floats : CHUNK;
}

/* Nodes that this rank has at the end of a step. */
static int own_nodes(const struct cmn_ordered_sum *s)
{
    int own = 0;

    for (int i = 0; i < s->nodes; i++) {
        own += s->all[i].rank == s->topology->rank;
    }
    return own;
}

void cmn_ordered_sum_divide(struct cmn_ordered_sum *s, const int *first)
{
    const struct cmn_topology *t = s->topology;
    size_t chunk = chunk_floats(s), most = chunk / (size_t)t->size + 1;

    s->nodes = 0;
    for (int rank = 0; rank < t->size; rank++) {
        list_nodes(s, rank, first[rank], first[rank + 1]);
    }
    s->first = s->next = first[t->rank];
    s->end = first[t->rank + 1];
    release(s, s->received);
    release_host(s);
    free(s->slice);
    free(s->request);
    s->received = t->size > 1 ? new_memory(s, most * (size_t)s->nodes) : NULL;
    if (s->on_gpu && t->size > 1) {
        require(cmn_device_host_memory(&s->host, chunk * (size_t)(own_nodes(s) + 1) +
                                                     most * (size_t)s->nodes));
    }
    s->slice = cmn_calloc((size_t)s->nodes, sizeof *s->slice);
    s->request = cmn_calloc((size_t)s->nodes * (size_t)t->size, sizeof(MPI_Request));
}

struct cmn_ordered_sum *cmn_ordered_sum_open(const struct cmn_topology *t, int micro_batches,
                                             size_t floats)
{
    struct cmn_ordered_sum *s = cmn_calloc(1, sizeof *s);
    int *first = cmn_calloc((size_t)t->size + 1, sizeof *first);

    s->topology = t;
    s->micro_batches = micro_batches;
    s->floats = floats;
    s->on_gpu = t->device >= 0;
    s->all = cmn_calloc((size_t)micro_batches + 1, sizeof *s->all);
    for (int rank = 0; rank <= t->size; rank++) {
        first[rank] = cmn_ordered_sum_first(micro_batches, rank, t->size);
    }
    cmn_ordered_sum_divide(s, first);
    free(first);
    s->count = cmn_calloc((size_t)t->size, sizeof *s->count);
    s->place = cmn_calloc((size_t)t->size, sizeof *s->place);
    return s;
}

void cmn_ordered_sum_close(struct cmn_ordered_sum *s)
{
    if (!s) {
        return;
    }
    for (int i = 0; i < NODES && !s->window; i++) {
        release(s, s->memory[i]);
    }
    cmn_window_close(s->window);
    free(s->all);
    release(s, s->received);
    release_host(s);
    free(s->slice);
    free(s->request);
    free(s->count);
    free(s->place);
    free(s);
}

/* ---- in shared memory ---- */

/* Sums that a rank keeps at once: most of them perhaps before its last micro-batch. */
static int most_nodes(int first, int end)
{
    int most = 0;

    for (int at = first; at < end; at++) {
        int nodes = 0;
        for (int i = first, n; i <= at; i += n, nodes++) {
            for (n = 1; i % (2 * n) == 0 && i + 2 * n <= at + 1; n *= 2) {
            }
        }
        most = nodes > most ? nodes : most;
    }
    return most;
}

static float *shared_node(const struct cmn_ordered_sum *s, int rank, int i)
{
    size_t each = (s->floats + 15) / 16 * 16;

    return (float *)cmn_window_part(s->window, rank) + (size_t)i * each;
}

int cmn_ordered_sum_share(struct cmn_ordered_sum *s, const struct cmn_options *options)
{
    const struct cmn_topology *t = s->topology;
    int nodes = most_nodes(s->first, s->end);
    size_t each = (s->floats + 15) / 16 * 16;

    s->group = (struct cmn_group){t->world, "world", t, options};
    if (cmn_window_open(&s->window, &s->group, (size_t)nodes * each * sizeof(float), 0)) {
        return -1;
    }
    cmn_window_barrier_of(s->window)->purpose = "cmn_exact";
    for (int i = 0; i < nodes; i++) {
        s->memory[i] = shared_node(s, t->rank, i);
    }
    return 0;
}

/* ---- a rank's own ---- */

/* As in a counter: two nodes of a size become their parent, and that perhaps the next one. All are
 * added in one pass: (x + a) + b has the bits of b + (a + x). */
void cmn_ordered_sum_add(struct cmn_ordered_sum *s, float *x, int stays)
{
    struct node node = {s->next++, 1, s->topology->rank};
    float *added[NODES + 1] = {x};
    int i = s->owns, n = 1;

    for (; i > 0 && s->own[i - 1].n == node.n && s->own[i - 1].first % (2 * node.n) == 0; i--) {
        added[n++] = s->memory[i - 1];
        node = (struct node){s->own[i - 1].first, 2 * node.n, node.rank};
    }
    if (s->window && s->owns == 0 && s->all[0].rank == s->topology->rank) {
        cmn_shm_barrier_await(cmn_window_barrier_of(s->window), s->read);
    }
    if (stays && s->next == s->end && s->window) {
        cmn_reduce(s->memory[i], added, n, 0, s->floats);
        s->at[i] = s->memory[i];
    } else if (stays && s->next == s->end) {
        if (n > 1) {
            add(s, x, added, n, s->floats);
        }
        s->at[i] = x;
    } else {
        if (!s->memory[i]) {
            s->memory[i] = new_memory(s, s->floats);
        }
        add_away(s, s->memory[i], added, n, s->floats);
        s->at[i] = s->memory[i];
    }
    s->own[i] = node;
    s->owns = i + 1;
}

/* ---- between ranks ---- */

/* n floats behind `at` of this rank's node `own`, from where MPI sends them. */
static const float *sent_from(const struct cmn_ordered_sum *s, int own, size_t at, size_t n)
{
    float *host = s->host + (size_t)own * chunk_floats(s);

    if (!s->on_gpu) {
        return s->at[own] + at;
    }
    require(cmn_device_read(host, s->at[own] + at, n));
    return host;
}

/* Each node's slice of this rank comes to s->slice; of the n floats behind `at`. */
static void scatter(struct cmn_ordered_sum *s, size_t at, size_t n)
{
    const struct cmn_topology *t = s->topology;
    size_t begin = at + slice_begin(s, n, t->rank), mine = slice_floats(s, n, t->rank);
    float *room = s->received, *comes_to = room;
    int requests = 0, own = 0;

    if (s->on_gpu && t->size > 1) {
        comes_to = s->host + (size_t)own_nodes(s) * chunk_floats(s);
    }
    for (int i = 0; i < s->nodes; i++) {
        const float *from;
        if (s->all[i].rank != t->rank) {
            s->slice[i] = room;
            MPI_CALL(MPI_Irecv(comes_to + (room - s->received), (int)mine, MPI_FLOAT,
                               s->all[i].rank, i, t->world, &s->request[requests++]));
            room += mine;
            continue;
        }
        from = t->size > 1 ? sent_from(s, own, at, n) : NULL;
        for (int rank = 0; rank < t->size; rank++) {
            if (rank != t->rank) {
                MPI_CALL(MPI_Isend(from + slice_begin(s, n, rank), (int)slice_floats(s, n, rank),
                                   MPI_FLOAT, rank, i, t->world, &s->request[requests++]));
            }
        }
        s->slice[i] = s->at[own++] + begin;
    }
    MPI_CALL(MPI_Waitall(requests, s->request, MPI_STATUSES_IGNORE));
    if (s->on_gpu && room > s->received) {
        require(cmn_device_write(s->received, comes_to, (size_t)(room - s->received)));
    }
}

/* Adds n floats of the nodes *i and on up to the node [from, end), to `into` or where the first one
 * lies, if it is no node that a rank has; *i is then the one behind it. */
static float *add_up(struct cmn_ordered_sum *s, int from, int end, int *i, size_t n, float *into)
{
    const struct node *node = &s->all[*i];
    int middle = from + power_below(end - from);
    float *both[2];

    if (node->first == from && node->first + node->n == end) {
        return s->slice[(*i)++];
    }
    both[0] = add_up(s, from, middle, i, n, NULL);
    both[1] = add_up(s, middle, end, i, n, NULL);
    into = into ? into : both[0];
    add(s, into, both, 2, n);
    return into;
}

static void gather(struct cmn_ordered_sum *s, float *sum, size_t n)
{
    float *at = sum;

    if (s->on_gpu) {
        size_t begin = slice_begin(s, n, s->topology->rank);
        at = s->host; /* its own nodes are sent */
        require(cmn_device_read(at + begin, sum + begin, slice_floats(s, n, s->topology->rank)));
    }
    for (int rank = 0; rank < s->topology->size; rank++) {
        s->count[rank] = (int)slice_floats(s, n, rank);
        s->place[rank] = (int)slice_begin(s, n, rank);
    }
    MPI_CALL(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at, s->count, s->place, MPI_FLOAT,
                            s->topology->world));
    if (s->on_gpu) {
        require(cmn_device_write(sum, at, n));
    }
}

/* The sum comes to where the first node lies, the first rank's, which others read until they arrive at
 * the last barrier. */
static void complete_shared(struct cmn_ordered_sum *s, float *sum)
{
    struct cmn_shm_barrier *barrier = cmn_window_barrier_of(s->window);
    size_t begin, mine;

    cmn_slice(s->floats, s->topology->size, s->topology->rank, &begin, &mine);
    cmn_window_barrier(s->window);
    for (size_t at = begin; at < begin + mine; at += BLOCK) {
        size_t n = begin + mine - at < BLOCK ? begin + mine - at : BLOCK;
        int node = 0;
        for (int i = 0, of = 0; i < s->nodes; i++) {
            of = i > 0 && s->all[i].rank == s->all[i - 1].rank ? of + 1 : 0;
            s->slice[i] = shared_node(s, s->all[i].rank, of) + at;
        }
        add_up(s, 0, s->micro_batches, &node, n, NULL);
    }
    cmn_window_barrier(s->window);
    memcpy(sum, shared_node(s, s->all[0].rank, 0), s->floats * sizeof *sum);
    s->read = cmn_shm_barrier_arrive(barrier);
}

void cmn_ordered_sum_complete(struct cmn_ordered_sum *s, float *sum)
{
    int rank = s->topology->rank;

    if (s->next != s->end) {
        cmn_fatal("cmn_exact: %d micro-batches of this step are added up, and its next one is "
                  "missing: an error of the program",
                  s->next - s->first);
    }
    if (s->window) {
        complete_shared(s, sum);
    }
    for (size_t at = 0; at < s->floats && !s->window; at += CHUNK) {
        size_t n = s->floats - at < CHUNK ? s->floats - at : CHUNK;
        size_t mine = slice_floats(s, n, rank);
        float *into = sum + at + slice_begin(s, n, rank), *there;
        int node = 0;
        scatter(s, at, n);
        there = add_up(s, 0, s->micro_batches, &node, mine, into);
        if (there != into) {
            copy(s, into, there, mine);
        }
        if (s->topology->size > 1) {
            gather(s, sum + at, n);
        }
    }
    cmn_ordered_sum_drop(s);
}

void cmn_ordered_sum_drop(struct cmn_ordered_sum *s)
{
    s->owns = 0;
    s->next = s->first;
}
