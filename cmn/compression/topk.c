/* topk: of each shard only the values of largest magnitude travel; each rank keeps the others and
 * adds them to the next gradient.
 *
 * Steps, for each shard of n floats: kept += gradient; the k = max(1, ratio * n) values of
 * largest magnitude (of equal ones those with the lower index) are cast to bf16 and reach every
 * other rank; kept -= what was sent; the shard becomes the sum of what all ranks have sent, added
 * in the order of the ranks.
 * Among few ranks each rank's values go to all others. Bytes sent per rank of M: (M-1) * (4k + 4 *
 * blocks), where a block is 65536 floats of the shard: its number of values in 4 bytes, then for
 * each value its place in the block in 2 bytes, and the value in 2.
 * Among more than CMN_SCHEDULE_FEW, or where it is less whatever is selected, each value goes to the
 * rank that owns its slice, and the sums go to all (owners.h): to the bit the same ones. A rank
 * receives (M-1)/M times 4k bytes, and 4 for each float that one rank has selected, at most 6 for
 * each that several have, but at most 4n.
 * What goes to all goes by the allgather of the algorithm that CMN_DEBUG_EXCHANGE names
 * (transports/schedule.h): straight to each rank, or in rounds in which a rank passes on what it
 * has received. auto takes halving above CMN_SCHEDULE_FEW ranks, so a rank begins log2(M) transfers
 * and not M-1; mpi goes straight. The sums are the same by each.
 * In the first cmn_topk_warmup steps k is larger: eight times in the first third of them,
 * then four times, then twice; at most n / 2. Early gradients change fastest, and a value that
 * waits is out of date when it arrives.
 * bf16, not fp16: the factors of gradients (batch, learning rate) are unknown here, and bf16 has
 * the range of fp32; what it rounds off is kept as all else.
 * NaN and Inf are larger than all other values, so they travel, and are not kept. If there are
 * more than k, those left over are dropped: the sum is no longer finite anyway, and what is kept
 * must become finite again.
 * In a group of one rank nothing travels, and nothing is changed.
 * On a GPU each rank's values go to all others, on any number of ranks. Gradients and kept values lie
 * there; kernels select, and add in the same order to the same bits, and only what travels comes to
 * the host.
 * Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", 2017; Lin et al.,
 * "Deep Gradient Compression", 2018 (without its momentum correction). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/float16.h"
#include "base/memory.h"
#include "compression/compressor.h"
#include "compression/owners.h"
#include "compression/place.h"
#include "compression/select.h"
#include "compression/shard_queue.h"
#include "mpi/call.h"
#include "transports/schedule.h"
#include "transports/sums.h"

/* Shards have tags of their own, as one may be rounds ahead of another. MPI has tags up to 32767
 * at least. */
enum { BLOCK = CMN_SELECTED_BLOCK, FIRST_TAG = 64, TAGS = 32000 };

/* The most bytes in a message (see CHUNK in transports/pairwise.c). */
enum { MESSAGE = 60 * 1024 };

/* A shard that does not travel exactly. What a rank selects of it: count[blocks], place[k],
 * value[k] (owners.h). */
struct selection {
    size_t n, k, blocks, bytes;
    float *data, *kept;
    float *host;               /* k = 0: where messages find the shard; `data` on the CPU */
    struct cmn_owners *owners; /* NULL: all ranks get all selections */
    unsigned char *own;    /* `bytes` of each rank, from this one on: rank + 1, ..., rank - 1; with
                              owners of this one alone */
    unsigned char *on_gpu; /* the same, there */
    MPI_Request *request;  /* first those that receive, in the order of the rounds */
    int requests, left;    /* of this step, and of these incomplete */
    int there;             /* requests from the first on that are complete */
    int round;             /* rounds of this step whose sends were begun */
    int tag;
};

struct topk {
    const struct cmn_compressor_plan *plan;
    struct cmn_place *place;
    struct cmn_shard_queue queue;
    struct cmn_sums *exact; /* sums the shards that travel exactly */
    const struct cmn_schedule *by;
    int rank, ranks, rounds;
    int waits; /* a round sends what the one before has received; else all begin at once */
    int owned; /* shards with owners */
    int tags;
    struct selection
        *selection; /* of each shard; k = 0: it travels exactly, or is another owner's */
    long *job;      /* of a shard that travels exactly: how many jobs there were with it */
    long jobs, jobs_ended;
    long given;  /* shards whose messages were begun */
    long *step;  /* of each shard: how often it was begun */
    float *kept; /* of all shards */
    size_t floats;
    /* Work space for one shard: its completed requests, what was selected. */
    int *completed;
    uint32_t *index;
    float *value, *rounded;
    struct cmn_traffic traffic;
};

static size_t messages_of(size_t bytes)
{
    return (bytes + MESSAGE - 1) / MESSAGE;
}

static int is_mine(const struct topk *t, const struct cmn_shard *shard)
{
    return shard->owner == t->plan->owner && !shard->exact && shard->n > 0 && t->ranks > 1;
}

/* ---- memory ---- */

static void close_topk(void *self)
{
    struct topk *t = self;

    for (int i = 0; i < t->plan->shards; i++) {
        free(t->selection[i].request);
        cmn_owners_close(t->selection[i].owners);
    }
    cmn_place_close(t->place);
    cmn_sums_close(t->exact);
    cmn_shard_queue_close(&t->queue);
    free(t->selection);
    free(t->job);
    free(t->step);
    free(t->completed);
    free(t->index);
    free(t->value);
    free(t->rounded);
    free(t);
}

/* How many values of shard i travel in a step: more in the first ones (Lin et al.). Powers of
 * two, and not a curve that two hosts' libraries could compute differently. */
static size_t wanted(const struct topk *t, int i, long step)
{
    const struct cmn_options *o = t->plan->options;
    size_t n = t->plan->shard[i].n, k = (size_t)floor(o->compress_ratio * (double)n + 0.5), most;

    k = k < 1 ? 1 : k > n ? n : k;
    most = k > n / 2 ? k : n / 2;
    if (step < o->compress_warmup) {
        k <<= 3 - 3 * step / o->compress_warmup;
    }
    return k < most ? k : most;
}

static void resize(const struct topk *t, int i)
{
    struct selection *p = &t->selection[i];

    p->k = wanted(t, i, t->step[i]);
    p->bytes = cmn_selected_bytes(p->n, p->k);
}

static enum cmn_exchange_by exchange_by(const struct topk *t)
{
    enum cmn_exchange_by by = (enum cmn_exchange_by)t->plan->options->exchange;

    if (by == CMN_EXCHANGE_AUTO) {
        return t->ranks > CMN_SCHEDULE_FEW ? CMN_EXCHANGE_HALVING : CMN_EXCHANGE_PAIRWISE;
    }
    return by;
}

static void open_selection(struct topk *t, int i, size_t *kept_at)
{
    const struct cmn_shard *shard = &t->plan->shard[i];
    struct selection *p = &t->selection[i];
    int owned = !cmn_place_on_gpu(t->place) &&
                cmn_owners_pay(t->ranks, shard->n, wanted(t, i, t->plan->options->compress_warmup));
    size_t sets = owned ? 1 : (size_t)t->ranks; /* of values */

    if (shard->n > UINT32_MAX) {
        cmn_fatal("topk takes tensors of up to 2^32 values, not %zu: set cmn_compress=off",
                  shard->n);
    }
    p->n = shard->n;
    p->blocks = (p->n + BLOCK - 1) / BLOCK;
    resize(t, i); /* it is never larger than in the first step */
    p->kept = t->kept + *kept_at;
    *kept_at += p->n;
    p->own = cmn_place_host(t->place, sets * p->bytes);
    p->on_gpu = cmn_place_on_gpu(t->place) ? cmn_place_memory(t->place, sets * p->bytes) : NULL;
    p->tag = FIRST_TAG + t->tags % TAGS;
    t->tags += 2;
    if (owned) {
        t->owned++;
        p->owners = cmn_owners_open(t->plan->comm, p->tag, p->n, p->k, exchange_by(t), &t->traffic);
        return;
    }
    p->request = cmn_calloc(2 * (sets - 1) * messages_of(p->bytes), sizeof *p->request);
}

static void open_memory(struct topk *t)
{
    size_t room = 1, most = 1, messages = 1, kept_at = 0, shards = (size_t)t->plan->shards;
    size_t largest = 0;
    int on_gpu = cmn_place_on_gpu(t->place);

    t->selection = cmn_calloc(shards, sizeof *t->selection);
    t->job = cmn_calloc(shards, sizeof *t->job);
    t->step = cmn_calloc(shards, sizeof *t->step);
    for (int i = 0; i < t->plan->shards; i++) {
        t->floats += is_mine(t, &t->plan->shard[i]) ? t->plan->shard[i].n : 0;
    }
    t->kept = cmn_place_memory(t->place, t->floats * sizeof *t->kept);
    for (int i = 0; i < t->plan->shards; i++) {
        const struct cmn_shard *shard = &t->plan->shard[i];
        struct selection *p = &t->selection[i];
        p->data = t->plan->block + shard->at;
        if (!is_mine(t, shard)) {
            int copied = on_gpu && shard->owner == t->plan->owner;
            p->host = copied ? cmn_place_host(t->place, shard->n * sizeof *p->host) : p->data;
            continue;
        }
        open_selection(t, i, &kept_at);
        largest = p->n > largest ? p->n : largest;
        most = p->k > most ? p->k : most;
        messages = messages_of(p->bytes) > messages ? messages_of(p->bytes) : messages;
        room = cmn_select_room(p->n, p->k) > room ? cmn_select_room(p->n, p->k) : room;
    }
    if (on_gpu) {
        cmn_place_work(t->place, largest);
        room = most = 1; /* no work space of the CPU's */
    }
    t->completed = cmn_malloc(2 * (size_t)t->ranks * messages, sizeof *t->completed);
    t->index = cmn_malloc(room, sizeof *t->index);
    t->value = cmn_malloc(room, sizeof *t->value);
    t->rounded = cmn_malloc(most, sizeof *t->rounded);
}

static void *open_topk(const struct cmn_compressor_plan *plan)
{
    struct topk *t = cmn_calloc(1, sizeof *t);

    t->plan = plan;
    MPI_Comm_rank(plan->comm, &t->rank);
    MPI_Comm_size(plan->comm, &t->ranks);
    t->by = cmn_schedule_of(exchange_by(t));
    t->rounds = t->by->rounds(t->ranks);
    t->waits = exchange_by(t) != CMN_EXCHANGE_PAIRWISE;
    t->place = cmn_place_open(plan->topology->device >= 0, plan->stream, plan->shards);
    open_memory(t);
    cmn_shard_queue_open(&t->queue, plan);
    t->exact = cmn_sums_open(plan->comm, plan->options, 0);
    return t;
}

/* ---- sending ---- */

/* Writes the k values to p->own, and subtracts from the kept values what the other ranks will
 * receive. */
static void encode(struct topk *t, struct selection *p)
{
    uint32_t *count = (uint32_t *)(void *)p->own;
    uint16_t *place = (uint16_t *)(void *)(p->own + p->blocks * sizeof *count);
    size_t not_finite = 0;

    cmn_select(p->kept, p->data, p->n, p->k, t->index, t->value);
    cmn_float16_encode(CMN_BF16, place + p->k, t->value, p->k);
    cmn_float16_decode(CMN_BF16, t->rounded, place + p->k, p->k);
    memset(count, 0, p->blocks * sizeof *count);
    for (size_t i = 0; i < p->k; i++) {
        float rest = t->value[i] - t->rounded[i];
        count[t->index[i] / BLOCK]++;
        place[i] = (uint16_t)(t->index[i] % BLOCK);
        p->kept[t->index[i]] = isfinite(t->value[i]) ? rest : 0;
        not_finite += !isfinite(t->value[i]);
    }
    for (size_t i = 0; not_finite == p->k && i < p->n; i++) {
        p->kept[i] = isfinite(p->kept[i]) ? p->kept[i] : 0;
    }
}

/* Round i of the allgather: this rank's blocks are those of the ranks from it on. It sends `blocks`
 * of them from first - distance on to rank - distance, and gets those from first on. */
static struct cmn_round round_of(const struct topk *t, int i)
{
    return t->by->round(t->ranks, t->rounds - 1 - i);
}

static void send_round(struct topk *t, struct selection *p, int i)
{
    struct cmn_round is = round_of(t, i);
    const unsigned char *from = p->own + (size_t)(is.first - is.distance) * p->bytes;
    size_t all = (size_t)is.blocks * p->bytes;

    for (size_t at = 0; at < all; at += MESSAGE) {
        size_t bytes = all - at < MESSAGE ? all - at : MESSAGE;
        MPI_CALL(MPI_Isend(from + at, (int)bytes, MPI_BYTE,
                           (t->rank - is.distance + t->ranks) % t->ranks, p->tag, t->plan->comm,
                           &p->request[p->requests++]));
        p->left++;
        t->traffic.sent += bytes;
    }
}

static void receive(struct topk *t, struct selection *p)
{
    for (int i = 0; i < t->rounds; i++) {
        struct cmn_round is = round_of(t, i);
        unsigned char *to = p->own + (size_t)is.first * p->bytes;
        size_t all = (size_t)is.blocks * p->bytes;
        for (size_t at = 0; at < all; at += MESSAGE) {
            size_t bytes = all - at < MESSAGE ? all - at : MESSAGE;
            MPI_CALL(MPI_Irecv(to + at, (int)bytes, MPI_BYTE, (t->rank + is.distance) % t->ranks,
                               p->tag, t->plan->comm, &p->request[p->requests++]));
            p->left++;
        }
    }
}

/* Requests of the rounds before i that receive. */
static int received_before(const struct topk *t, const struct selection *p, int i)
{
    int requests = 0;

    for (int r = 0; r < i; r++) {
        requests += (int)messages_of((size_t)round_of(t, r).blocks * p->bytes);
    }
    return requests;
}

/* Begins the sends of the rounds that have all they send. */
static void send_rounds(struct topk *t, struct selection *p)
{
    while (p->there < p->requests && p->request[p->there] == MPI_REQUEST_NULL) {
        p->there++;
    }
    while (p->round < t->rounds && (!t->waits || p->there >= received_before(t, p, p->round))) {
        send_round(t, p, p->round++);
    }
}

/* Completes what has come, and sends it on. Whether all is there. */
static int advance(struct topk *t, struct selection *p)
{
    int completed = 0;

    if (p->left) {
        MPI_CALL(
            MPI_Testsome(p->requests, p->request, &completed, t->completed, MPI_STATUSES_IGNORE));
        p->left -= completed;
        t->traffic.moved += (unsigned long long)completed;
        send_rounds(t, p);
    }
    return !p->left;
}

static void begin_exact(struct topk *t, int i)
{
    const struct cmn_sum sum = {
        .data = t->selection[i].host,
        .n = t->plan->shard[i].n,
        .dtype = CMN_FP32,
    };

    t->job[i] = ++t->jobs;
    cmn_sums_begin(t->exact, &sum);
}

/* Begins the messages of shards in their order, as soon as the host has what they send. */
static void give(struct topk *t)
{
    int next = (int)(t->given - t->queue.ended);

    for (; next < t->queue.in_flight; next++, t->given++) {
        int i = cmn_shard_queue_at(&t->queue, next);
        struct selection *p = &t->selection[i];
        if (!cmn_place_is_out(t->place, i)) {
            return;
        }
        if (p->owners) {
            cmn_owners_give(p->owners, p->own, p->k);
        } else if (p->k) {
            send_rounds(t, p);
        } else {
            begin_exact(t, i);
        }
    }
}

static void begin_topk(void *self, int i)
{
    struct topk *t = self;
    struct selection *p = &t->selection[i];

    cmn_shard_queue_add(&t->queue, i);
    if (!p->k) {
        cmn_place_out(t->place, i, p->host, p->data, t->plan->shard[i].n * sizeof *p->host);
        give(t);
        return;
    }
    resize(t, i);
    t->step[i]++;
    p->requests = p->left = p->there = p->round = 0;
    if (p->owners) {
        cmn_owners_begin(p->owners);
    } else {
        receive(t, p);
    }
    if (p->on_gpu) {
        cmn_place_select(t->place, p->kept, p->data, p->n, p->k, p->on_gpu);
        cmn_place_out(t->place, i, p->own, p->on_gpu, p->bytes);
    } else {
        encode(t, p);
    }
    give(t);
}

/* ---- receiving ---- */

/* What each rank has sent, this one too, in the order of the ranks. */
static void add_all(struct topk *t, const struct selection *p)
{
    if (p->on_gpu) {
        cmn_place_back(t->place, p->on_gpu + p->bytes, p->own + p->bytes,
                       (size_t)(t->ranks - 1) * p->bytes);
    }
    for (int from = 0; from < t->ranks; from++) {
        size_t at = (size_t)((from - t->rank + t->ranks) % t->ranks) * p->bytes;
        if (p->on_gpu) {
            cmn_place_add(t->place, p->data, p->n, p->on_gpu + at, p->k);
        } else {
            cmn_selected_add(p->data, p->n, p->own + at);
        }
    }
}

static int ended(void *self, int i)
{
    struct topk *t = self;
    struct selection *p = &t->selection[i];
    int given, is_there = 0;

    give(t);
    if (t->given == t->queue.ended) {
        return 0;
    }
    /* Others wait for what this rank passes on of later shards. */
    given = t->waits || t->owned ? (int)(t->given - t->queue.ended) : 1;
    for (int next = 0; next < given; next++) {
        struct selection *one = &t->selection[cmn_shard_queue_at(&t->queue, next)];
        int summed = one->owners ? cmn_owners_advance(one->owners, one->data) : advance(t, one);
        is_there = next ? is_there : summed;
    }
    t->jobs_ended = t->jobs_ended < t->jobs ? cmn_sums_progress(t->exact, 0) : t->jobs_ended;
    if (!p->k) {
        if (t->jobs_ended < t->job[i]) {
            return 0;
        }
        cmn_place_back(t->place, p->data, p->host, t->plan->shard[i].n * sizeof *p->host);
        return 1;
    }
    if (!is_there) {
        return 0;
    }
    if (!p->owners) {
        add_all(t, p);
    }
    return 1;
}

static unsigned long long moved(const void *self)
{
    const struct topk *t = self;

    return t->traffic.moved + (unsigned long long)t->jobs_ended + cmn_sums_sent(t->exact);
}

/* Receives are the first requests, in the order in which receive() has begun them. What is passed
 * on names the rank that has not done so, which may wait for another. */
static void stalled(const void *self, int i, long seconds)
{
    const struct topk *t = self;
    const struct selection *p = &t->selection[i];
    int round = 0;

    if (t->given == t->queue.ended) {
        cmn_fatal("a copy from the GPU did not end in %ld s (cmn_timeout)", seconds);
    }
    if (!p->k) {
        cmn_sums_stalled(t->exact, seconds);
    }
    if (p->owners && cmn_owners_wait_for(p->owners) >= 0) {
        cmn_nothing_from(t->plan->comm, cmn_owners_wait_for(p->owners), seconds);
    }
    for (int r = 0; !p->owners && r < received_before(t, p, t->rounds); r++) {
        round += r == received_before(t, p, round + 1);
        if (p->request[r] != MPI_REQUEST_NULL) {
            cmn_nothing_from(t->plan->comm, (t->rank + round_of(t, round).distance) % t->ranks,
                             seconds);
        }
    }
    cmn_fatal_lost("exchange: the other nodes took nothing for %ld s (cmn_timeout)", seconds);
}

static long progress_topk(void *self, long until)
{
    static const struct cmn_shard_queue_ops ops = {ended, moved, stalled};
    struct topk *t = self;

    return cmn_shard_queue_progress(&t->queue, until, t, &ops);
}

static unsigned long long sent_topk(const void *self)
{
    const struct topk *t = self;

    return t->traffic.sent + cmn_sums_sent(t->exact);
}

static int state_topk(void *self, int i, struct cmn_state *state)
{
    struct topk *t = self;

    if (i >= (t->floats ? 2 : 0)) {
        return 0;
    }
    *state = i == 0 ? (struct cmn_state){"kept by topk", t->kept, t->floats * sizeof *t->kept,
                                         CMN_VALUES_FINITE, 0}
                    : (struct cmn_state){"steps of topk", t->step,
                                         (size_t)t->plan->shards * sizeof *t->step,
                                         CMN_VALUES_COUNT, (long)CMN_MOST_EXACT};
    return i == 0 && cmn_place_on_gpu(t->place) ? 2 : 1;
}

const struct cmn_compressor cmn_compressor_topk = {
    .name = "topk",
    .wire = "(M-1) * 4 * ratio * n; M > 8: at most that + 4 * ratio * n, and 4n + 4 * ratio * n",
    .use = "slow links; up to 8 nodes, and on GPUs, what is sent grows with their number",
    .source = "Lin et al., Deep Gradient Compression, 2018",
    .open = open_topk,
    .begin = begin_topk,
    .progress = progress_topk,
    .sent = sent_topk,
    .state = state_topk,
    .close = close_topk,
};
