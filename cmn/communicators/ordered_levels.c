#include "communicators/ordered_levels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/reduce.h"
#include "communicators/ordered_tree.h"
#include "mpi/call.h"
#include "mpi/shared_window.h"
#include "mpi/shm_barrier.h"

/* A chunk of the sums is exchanged at once: it bounds the memory for other nodes' subtrees. A block of them stays
 * in a cache while it is added. */
enum { CHUNK = 1 << 20, BLOCK = 4096 };

/* Floats that a rank has filled since the window was opened, in a pair of cache lines of its own. */
struct filled {
    _Alignas(128) _Atomic uint64_t floats;
};

struct range {
    size_t at, n;
};

struct requests {
    MPI_Request *all;
    int n, room;
};

struct cmn_ordered_levels {
    const struct cmn_topology *topology;
    struct cmn_group group;    /* the ranks of this node */
    struct cmn_window *window; /* NULL: this rank is alone on its node */
    int room;                  /* sums of a rank for which it has room */
    int last;      /* number of its rank in whose memory the last sum lies; -1: none's */
    uint32_t read; /* the barrier behind which all have copied that */
    size_t floats;
    int first_alone; /* exchanges with other nodes */
    int overlaps;
    size_t chunk; /* floats that are exchanged at once */

    int *node_of; /* of each rank */
    int *rank,
        *begins; /* the ranks of node m, in order: rank[begins[m]] … rank[begins[m + 1] - 1] */

    int micro_batches;
    struct cmn_subtree *of_rank; /* this node's ranks' at the end of a step, in order */
    int of_ranks;
    struct cmn_subtree *of_node; /* all nodes', in order: what is exchanged */
    int of_nodes;
    struct cmn_subtree *here; /* the same, where a part of a chunk of each lies */

    /* Of two chunks at once: a part of each subtree of other nodes, and what is under way for it. */
    float *received[2];
    struct requests subtrees[2], sums;

    /* Of this step. */
    float *place;              /* where the sum comes to; NULL: nothing is known of it yet */
    size_t begun, ended, mine; /* floats: of chunks, and that this rank has filled */
    uint64_t before;           /* floats of the steps before, since the window was opened */
    int advances;              /* it does: what it waits for would call it again */
};

/* ---- who has what ---- */

static int ranks_of(const struct cmn_ordered_levels *l, int node)
{
    return l->begins[node + 1] - l->begins[node];
}

/* Ranks of the node that exchange with others. */
static int exchangers(const struct cmn_ordered_levels *l, int node)
{
    return l->first_alone ? 1 : ranks_of(l, node);
}

static int exchanges(const struct cmn_ordered_levels *l)
{
    return l->topology->intra_rank < exchangers(l, l->topology->inter_rank);
}

static void find_ranks(struct cmn_ordered_levels *l)
{
    const struct cmn_topology *t = l->topology;
    int at = 0;

    l->node_of = cmn_calloc((size_t)t->size, sizeof *l->node_of);
    l->rank = cmn_calloc((size_t)t->size, sizeof *l->rank);
    l->begins = cmn_calloc((size_t)t->inter_size + 1, sizeof *l->begins);
    MPI_CALL(MPI_Allgather(&t->inter_rank, 1, MPI_INT, l->node_of, 1, MPI_INT, t->world));
    for (int node = 0; node < t->inter_size; node++) {
        for (int rank = 0; rank < t->size; rank++) {
            if (l->node_of[rank] == node) {
                l->rank[at++] = rank;
            }
        }
        l->begins[node + 1] = at;
    }
}

/* What comes of other nodes at once. */
static size_t most_received(const struct cmn_ordered_levels *l)
{
    size_t chunk = l->floats < l->chunk ? l->floats : l->chunk;
    size_t parts = (size_t)l->topology->inter_size * (size_t)exchangers(l, l->topology->inter_rank);

    return chunk / parts + 4 * 16; /* slices end at multiples of 16 */
}

static void list_subtrees(struct cmn_ordered_levels *l, const int *first)
{
    const struct cmn_topology *t = l->topology;
    int *holder, others = 0;
    size_t most;

    l->micro_batches = first[t->size];
    most = (size_t)l->micro_batches;
    holder = cmn_calloc(most, sizeof *holder);
    l->of_rank = cmn_realloc(l->of_rank, most, sizeof *l->of_rank);
    l->of_node = cmn_realloc(l->of_node, most, sizeof *l->of_node);
    l->here = cmn_realloc(l->here, most, sizeof *l->here);
    l->of_ranks = 0;
    for (int rank = 0; rank < t->size; rank++) {
        for (int i = first[rank]; i < first[rank + 1]; i++) {
            holder[i] = l->node_of[rank];
        }
        if (l->node_of[rank] == t->inter_rank) {
            l->of_ranks +=
                cmn_subtrees_of_rank(l->of_rank + l->of_ranks, rank, first[rank], first[rank + 1]);
        }
    }
    l->of_nodes = cmn_subtrees_of_holders(l->of_node, holder, 0, l->micro_batches);
    free(holder);
    for (int i = 0; i < l->of_nodes; i++) {
        others += l->of_node[i].holder != t->inter_rank && exchanges(l);
    }
    for (int i = 0; i < 2; i++) {
        free(l->received[i]);
        l->received[i] = others ? cmn_alloc_floats(most_received(l) * (size_t)others) : NULL;
    }
}

/* ---- shared memory ---- */

static size_t stride(const struct cmn_ordered_levels *l)
{
    return (l->floats + 15) / 16 * 16;
}

static float *shared(const struct cmn_ordered_levels *l, int intra_rank, int i)
{
    return (float *)cmn_window_part(l->window, intra_rank) + (size_t)i * stride(l);
}

float *cmn_ordered_levels_memory(const struct cmn_ordered_levels *l, int i)
{
    return l->window && i < l->room ? shared(l, l->topology->intra_rank, i) : NULL;
}

static struct filled *filled(const struct cmn_ordered_levels *l)
{
    return cmn_window_common(l->window);
}

static void advance(struct cmn_ordered_levels *l);

/* While a rank waits for others of its node: a message that counts as sent may still wait inside MPI for room on
 * the way. */
static void make_progress(void *self)
{
    struct cmn_ordered_levels *l = self;
    int flag;

    advance(l);
    MPI_CALL(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, l->topology->world, &flag, MPI_STATUS_IGNORE));
}

/* All nodes or none; all ranks get the reason of one that failed. */
static int all_succeeded(const struct cmn_topology *t, int result)
{
    struct {
        int bad, rank;
    } mine = {result != 0, t->rank}, worst;
    char why[512] = "";

    MPI_CALL(MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, t->world));
    if (!worst.bad) {
        return 0;
    }
    snprintf(why, sizeof why, "%s", result ? cmn_reason() : "");
    MPI_CALL(MPI_Bcast(why, sizeof why, MPI_CHAR, worst.rank, t->world));
    return cmn_fail("%s", why);
}

/* As many sums for each rank as one of the job has at once. */
static int open_window(struct cmn_ordered_levels *l, const int *first)
{
    const struct cmn_topology *t = l->topology;
    int room = 1, result = 0;

    for (int rank = 0; rank < t->size; rank++) {
        int most = cmn_subtrees_most(first[rank], first[rank + 1]);
        room = most > room ? most : room;
    }
    if (room <= l->room) {
        return 0;
    }
    cmn_window_close(l->window); /* ranks that still read have it until they close it */
    l->window = NULL;
    l->room = room;
    l->last = -1;
    l->before = 0;
    if (t->intra_size > 1) {
        result = cmn_window_open(&l->window, &l->group, (size_t)room * stride(l) * sizeof(float),
                                 (size_t)t->intra_size * sizeof(struct filled));
    }
    if (l->window) {
        struct cmn_shm_barrier *barrier = cmn_window_barrier_of(l->window);
        barrier->purpose = "cmn_exact";
        barrier->idle = t->inter_size > 1 && exchanges(l) ? make_progress : NULL;
        barrier->idle_self = l;
    }
    return all_succeeded(t, result);
}

const char *cmn_ordered_levels_no_overlap(const struct cmn_topology *t, int first_alone)
{
    if (t->inter_size == 1) {
        return "all ranks are on one node: there is no link whose time could be hidden";
    }
    return first_alone
               ? "the first rank of a node waits for what the others have added: use shm or "
                 "two_dimensional"
               : NULL;
}

static size_t floats_of_chunk(const struct cmn_ordered_levels *l, const struct cmn_options *o)
{
    const size_t least = 16 * 1024;
    size_t chunk = CHUNK;

    if (l->overlaps) {
        chunk =
            o->bucket_mb > 0 ? (size_t)(o->bucket_mb * (1 << 20) / sizeof(float)) : l->floats / 8;
        chunk = chunk < least ? least : chunk < CHUNK ? (chunk + 15) / 16 * 16 : CHUNK;
    }
    return chunk;
}

int cmn_ordered_levels_open(struct cmn_ordered_levels **levels, const struct cmn_topology *t,
                            const struct cmn_options *o, int first_alone, const int *first,
                            size_t floats)
{
    struct cmn_ordered_levels *l = cmn_calloc(1, sizeof *l);

    l->topology = t;
    l->group = (struct cmn_group){t->intra, "intra", t, o};
    l->floats = floats;
    l->first_alone = first_alone && t->inter_size > 1;
    l->overlaps = o->overlap == CMN_OVERLAP_ON && !cmn_ordered_levels_no_overlap(t, first_alone);
    l->chunk = floats_of_chunk(l, o);
    find_ranks(l);
    if (open_window(l, first)) {
        cmn_ordered_levels_close(l);
        return -1;
    }
    list_subtrees(l, first);
    *levels = l;
    return 0;
}

int cmn_ordered_levels_divide(struct cmn_ordered_levels *l, const int *first)
{
    if (open_window(l, first)) {
        return -1;
    }
    list_subtrees(l, first);
    return 0;
}

void cmn_ordered_levels_close(struct cmn_ordered_levels *l)
{
    if (!l) {
        return;
    }
    cmn_window_close(l->window);
    free(l->node_of);
    free(l->rank);
    free(l->begins);
    free(l->of_rank);
    free(l->of_node);
    free(l->here);
    for (int i = 0; i < 2; i++) {
        free(l->received[i]);
        free(l->subtrees[i].all);
    }
    free(l->sums.all);
    free(l);
}

const char *cmn_ordered_levels_how(const struct cmn_ordered_levels *l)
{
    const struct cmn_topology *t = l->topology;

    if (t->inter_size == 1) {
        return "in shared memory";
    }
    if (t->size == t->inter_size) {
        return "by messages between all ranks";
    }
    return l->first_alone ? "in each node's shared memory, and by its first rank between nodes"
                          : "in each node's shared memory, and by slices between nodes";
}

/* ---- within a node ---- */

static void wait_for_node(struct cmn_ordered_levels *l)
{
    if (l->window) {
        cmn_window_barrier(l->window);
    }
}

static int number_within(const struct cmn_ordered_levels *l, int rank)
{
    const int *ranks = l->rank + l->begins[l->topology->inter_rank];
    int number = 0;

    while (ranks[number] != rank) {
        number++;
    }
    return number;
}

void cmn_ordered_levels_wait(struct cmn_ordered_levels *l)
{
    if (l->window && l->last == l->topology->intra_rank) {
        cmn_shm_barrier_await(cmn_window_barrier_of(l->window), l->read);
    }
}

static void find_sums(struct cmn_ordered_levels *l, float *const *at)
{
    int of = 0;

    for (int i = 0; i < l->of_ranks; i++) {
        struct cmn_subtree *s = &l->of_rank[i];
        of = i > 0 && s->holder == l->of_rank[i - 1].holder ? of + 1 : 0;
        s->at = l->window ? shared(l, number_within(l, s->holder), of) : at[of];
    }
    for (int i = 0, j = 0; i < l->of_nodes; i++) {
        struct cmn_subtree *s = &l->of_node[i];
        if (s->holder == l->topology->inter_rank) {
            s->at = l->of_rank[j].at;
            for (; j < l->of_ranks && l->of_rank[j].first < s->first + s->n; j++) {
            }
        }
    }
}

static void add(float *into, float *const *both, size_t n)
{
    cmn_reduce(into, both, 2, 0, n);
}

/* The sums of this node's ranks become those of its subtrees, in place. */
static void add_within(const struct cmn_ordered_levels *l, struct range r)
{
    struct cmn_subtree_sum sum = {.add = add};

    for (size_t at = r.at, end = r.at + r.n; at < end; at += BLOCK) {
        sum.at = at;
        sum.n = end - at < BLOCK ? end - at : BLOCK;
        sum.next = l->of_rank;
        for (int i = 0; i < l->of_nodes; i++) {
            const struct cmn_subtree *s = &l->of_node[i];
            if (s->holder == l->topology->inter_rank) {
                cmn_subtrees_add_up(&sum, s->first, s->first + s->n, NULL);
            }
        }
    }
}

/* ---- between nodes ---- */

static MPI_Request *another(struct requests *r)
{
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 64;
        r->all = cmn_realloc(r->all, (size_t)r->room, sizeof *r->all);
    }
    return &r->all[r->n++];
}

static void wait_for_all(struct requests *r)
{
    MPI_CALL(MPI_Waitall(r->n, r->all, MPI_STATUSES_IGNORE));
    r->n = 0;
}

static struct range chunk_at(const struct cmn_ordered_levels *l, size_t at)
{
    return (struct range){at, l->floats - at < l->chunk ? l->floats - at : l->chunk};
}

/* Of the chunk's slice that node `of` adds up, the part of the rank number r of node `by`. */
static struct range part_of(const struct cmn_ordered_levels *l, struct range chunk, int of, int by,
                            int r)
{
    struct range slice, part;

    cmn_slice(chunk.n, l->topology->inter_size, of, &slice.at, &slice.n);
    cmn_slice(slice.n, exchangers(l, by), r, &part.at, &part.n);
    part.at += chunk.at + slice.at;
    return part;
}

static struct range in_both(struct range a, struct range b)
{
    size_t end = a.at + a.n < b.at + b.n ? a.at + a.n : b.at + b.n;
    struct range both = {a.at > b.at ? a.at : b.at, 0};

    both.n = end > both.at ? end - both.at : 0;
    return both;
}

static void send_to(const struct cmn_ordered_levels *l, const float *from, struct range r, int rank,
                    int tag, struct requests *requests)
{
    MPI_CALL(
        MPI_Isend(from, (int)r.n, MPI_FLOAT, rank, tag, l->topology->world, another(requests)));
}

static void receive_from(const struct cmn_ordered_levels *l, float *into, struct range r, int rank,
                         int tag, struct requests *requests)
{
    MPI_CALL(
        MPI_Irecv(into, (int)r.n, MPI_FLOAT, rank, tag, l->topology->world, another(requests)));
}

/* What other nodes have of `own`, a part of the slice that this node adds up. */
static void receive_subtrees(struct cmn_ordered_levels *l, struct range chunk, int which)
{
    const struct cmn_topology *t = l->topology;
    struct range own = part_of(l, chunk, t->inter_rank, t->inter_rank, t->intra_rank);
    float *into = l->received[which];

    for (int i = 0; i < l->of_nodes; i++) {
        int node = l->of_node[i].holder;
        if (node == t->inter_rank) {
            continue;
        }
        for (int r = 0; r < exchangers(l, node); r++) {
            struct range both = in_both(own, part_of(l, chunk, t->inter_rank, node, r));
            if (both.n) {
                receive_from(l, into + (both.at - own.at), both, l->rank[l->begins[node] + r], i,
                             &l->subtrees[which]);
            }
        }
        into += most_received(l);
    }
}

/* Adds up this rank's part of a slice, and sends it to the ranks of the node whose it is. */
static void send_subtrees(struct cmn_ordered_levels *l, struct range chunk, int which, int node)
{
    const struct cmn_topology *t = l->topology;
    struct range own = part_of(l, chunk, node, t->inter_rank, t->intra_rank);

    if (!l->first_alone) {
        add_within(l, own);
    }
    for (int r = 0; r < exchangers(l, node) && node != t->inter_rank; r++) {
        struct range both = in_both(own, part_of(l, chunk, node, node, r));
        for (int i = 0; i < l->of_nodes && both.n; i++) {
            if (l->of_node[i].holder == t->inter_rank) {
                send_to(l, l->of_node[i].at + both.at, both, l->rank[l->begins[node] + r], i,
                        &l->subtrees[which]);
            }
        }
    }
}

static void begin_chunk(struct cmn_ordered_levels *l, struct range chunk, int which)
{
    int nodes = l->topology->inter_size;

    receive_subtrees(l, chunk, which);
    for (int i = 1; i <= nodes; i++) { /* this node's own slice comes last */
        send_subtrees(l, chunk, which, (l->topology->inter_rank + i) % nodes);
    }
}

/* The subtrees have come: adds them up, from the leaves of the upper level to the root. */
static void add_between(struct cmn_ordered_levels *l, struct range own, int which, float *sum)
{
    struct cmn_subtree_sum up = {.add = add};
    float *received = l->received[which];

    for (int i = 0; i < l->of_nodes; i++) {
        l->here[i] = l->of_node[i];
        if (l->here[i].holder == l->topology->inter_rank) {
            l->here[i].at += own.at;
        } else {
            l->here[i].at = received;
            received += most_received(l);
        }
    }
    for (size_t at = 0; at < own.n; at += BLOCK) {
        float *into = sum + own.at + at, *there;
        up.next = l->here;
        up.at = at;
        up.n = own.n - at < BLOCK ? own.n - at : BLOCK;
        there = cmn_subtrees_add_up(&up, 0, l->micro_batches, into);
        if (there != into) {
            memcpy(into, there, up.n * sizeof *into);
        }
    }
}

static void end_chunk(struct cmn_ordered_levels *l, struct range chunk, int which, float *sum)
{
    const struct cmn_topology *t = l->topology;
    struct range own = part_of(l, chunk, t->inter_rank, t->inter_rank, t->intra_rank);

    wait_for_all(&l->subtrees[which]);
    add_between(l, own, which, sum);
    for (int node = 0; node < t->inter_size; node++) {
        struct range theirs = part_of(l, chunk, node, t->inter_rank, t->intra_rank);
        for (int r = 0; r < exchangers(l, node) && node != t->inter_rank; r++) {
            struct range in = in_both(theirs, part_of(l, chunk, node, node, r));
            struct range out = in_both(own, part_of(l, chunk, t->inter_rank, node, r));
            int rank = l->rank[l->begins[node] + r];
            if (in.n) {
                receive_from(l, sum + in.at, in, rank, l->of_nodes, &l->sums);
            }
            if (out.n) {
                send_to(l, sum + out.at, out, rank, l->of_nodes, &l->sums);
            }
        }
    }
}

/* ---- a step ---- */

/* Which of two chunks that may be under way at once. */
static int which_of(const struct cmn_ordered_levels *l, size_t at)
{
    return (int)(at / l->chunk % 2);
}

/* Whether all ranks of the node have filled the floats below `end`. */
static int are_filled(const struct cmn_ordered_levels *l, size_t end)
{
    int all = l->mine >= end;

    for (int i = 0; i < l->topology->intra_size && all && l->window; i++) {
        all = atomic_load_explicit(&filled(l)[i].floats, memory_order_acquire) >= l->before + end;
    }
    return all;
}

static void begin_chunks(struct cmn_ordered_levels *l)
{
    while (l->begun < l->floats && l->begun < l->ended + 2 * l->chunk) {
        struct range chunk = chunk_at(l, l->begun);
        if (!are_filled(l, chunk.at + chunk.n)) {
            return;
        }
        begin_chunk(l, chunk, which_of(l, chunk.at));
        l->begun += chunk.n;
    }
}

static void end_next_chunk(struct cmn_ordered_levels *l)
{
    struct range chunk = chunk_at(l, l->ended);

    end_chunk(l, chunk, which_of(l, chunk.at), l->place);
    l->ended += chunk.n;
}

/* Without waiting. */
static void advance(struct cmn_ordered_levels *l)
{
    int over = 1;

    if (!l->overlaps || !l->place || l->advances) {
        return;
    }
    l->advances = 1;
    begin_chunks(l);
    while (l->ended < l->begun) {
        struct requests *r = &l->subtrees[which_of(l, l->ended)];
        MPI_CALL(MPI_Testall(r->n, r->all, &over, MPI_STATUSES_IGNORE));
        if (!over) {
            break;
        }
        end_next_chunk(l);
        begin_chunks(l);
    }
    l->advances = 0;
}

/* All ranks of the node have filled all. */
static void exchange_rest(struct cmn_ordered_levels *l)
{
    while (l->ended < l->floats) {
        begin_chunks(l);
        end_next_chunk(l);
    }
    wait_for_all(&l->sums);
}

/* Where the sums lie, and where that of all comes to. */
static void begin_step(struct cmn_ordered_levels *l, float *const *at, float *sum)
{
    find_sums(l, at);
    l->place = sum;
    l->begun = l->ended = l->mine = 0;
    if (l->window) { /* where the node's first sum lies, or, on an idle node, would lie */
        l->last = l->of_ranks ? number_within(l, l->of_rank[0].holder) : 0;
        l->place = shared(l, l->last, 0);
    }
}

static void fill(struct cmn_ordered_levels *l, size_t upto)
{
    l->mine = upto;
    if (l->window) {
        atomic_store_explicit(&filled(l)[l->topology->intra_rank].floats, l->before + upto,
                              memory_order_release);
    }
}

void cmn_ordered_levels_filled(struct cmn_ordered_levels *l, float *const *at, float *sum,
                               size_t upto)
{
    if (!l->place) {
        begin_step(l, at, sum);
    }
    fill(l, upto);
    advance(l);
}

void cmn_ordered_levels_poll(struct cmn_ordered_levels *l)
{
    if (l->overlaps) {
        make_progress(l);
    }
}

void cmn_ordered_levels_complete(struct cmn_ordered_levels *l, float *const *at, float *sum)
{
    const struct cmn_topology *t = l->topology;

    if (!l->place) {
        begin_step(l, at, sum);
    }
    fill(l, l->floats);
    wait_for_node(l);
    if (l->first_alone) {
        struct range own;
        cmn_slice(l->floats, t->intra_size, t->intra_rank, &own.at, &own.n);
        add_within(l, own);
        wait_for_node(l);
    }
    if (exchanges(l)) {
        exchange_rest(l);
    }
    wait_for_node(l);
    if (l->window) {
        memcpy(sum, l->place, l->floats * sizeof *sum);
        l->read = cmn_shm_barrier_arrive(cmn_window_barrier_of(l->window));
    }
    l->before += l->floats;
    l->place = NULL;
}
