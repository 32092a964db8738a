#include "compression/owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/group.h"
#include "transports/schedule.h"

/* The most bytes in a message (see CHUNK in transports/pairwise.c). How long a transfer is its
 * sender alone knows: it ends with the first message that is shorter. */
enum { MESSAGE = 60 * 1024 };

enum { SELECTED, MERGED, PHASES };

static size_t blocks_of(size_t n)
{
    return (n + CMN_SELECTED_BLOCK - 1) / CMN_SELECTED_BLOCK;
}

static size_t floats_of_block(size_t n, size_t block)
{
    size_t left = n - block * CMN_SELECTED_BLOCK;

    return left < CMN_SELECTED_BLOCK ? left : CMN_SELECTED_BLOCK;
}

/* ---- selections ---- */

size_t cmn_selected_bytes(size_t n, size_t k)
{
    return blocks_of(n) * sizeof(uint32_t) + k * 2 * sizeof(uint16_t);
}

/* The values of all blocks. */
static size_t sum_of(const uint32_t *count, size_t blocks)
{
    size_t k = 0;

    for (size_t b = 0; b < blocks; b++) {
        k += count[b];
    }
    return k;
}

static float from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

size_t cmn_selected_add(float *sum, size_t n, const unsigned char *from)
{
    const uint32_t *count = (const uint32_t *)(const void *)from;
    size_t blocks = blocks_of(n), k = sum_of(count, blocks), i = 0;
    const uint16_t *place = (const uint16_t *)(const void *)(count + blocks), *value = place + k;

    for (size_t b = 0; b < blocks; b++) {
        float *block = sum + b * CMN_SELECTED_BLOCK;
        for (size_t end = i + count[b]; i < end; i++) {
            block[place[i]] += from_bf16(value[i]);
        }
    }
    return cmn_selected_bytes(n, k);
}

/* ---- sums ---- */

/* A slice begins with this, and then holds all floats; or with how many values each block has in
 * fp32, then how many in bf16; then these values, the places of both, and those in bf16. */
static const uint32_t dense = UINT32_MAX;

static size_t sparse_bytes(size_t n, size_t wides, size_t halves)
{
    size_t bytes = 2 * blocks_of(n) * sizeof(uint32_t) +
                   wides * (sizeof(float) + sizeof(uint16_t)) + halves * 2 * sizeof(uint16_t);

    return (bytes + 3) / 4 * 4;
}

static size_t dense_bytes(size_t n)
{
    return sizeof dense + n * sizeof(float);
}

size_t cmn_merged_most(size_t n, size_t values)
{
    size_t most = sparse_bytes(n, values < n ? values : n, 0);

    return most < dense_bytes(n) ? most : dense_bytes(n);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Nothing is sent of 0, which a sum is from the beginning on. */
static int is_wide(float value)
{
    return (bits_of(value) & 0xffff) != 0;
}

static int is_half(float value)
{
    return bits_of(value) != 0 && !is_wide(value);
}

static void count_merged(const float *sum, size_t n, uint32_t *wide, uint32_t *half)
{
    for (size_t b = 0; b < blocks_of(n); b++) {
        const float *block = sum + b * CMN_SELECTED_BLOCK;
        wide[b] = half[b] = 0;
        for (size_t i = 0; i < floats_of_block(n, b); i++) {
            wide[b] += (uint32_t)is_wide(block[i]);
            half[b] += (uint32_t)is_half(block[i]);
        }
    }
}

size_t cmn_merged_write(const float *sum, size_t n, unsigned char *to)
{
    size_t blocks = blocks_of(n), wides, halves, bytes;
    uint32_t *wide = cmn_malloc(2 * blocks + 1, sizeof *wide), *half = wide + blocks;
    uint16_t *wide_place, *half_place, *half_value;
    float *wide_value;

    count_merged(sum, n, wide, half);
    wides = sum_of(wide, blocks);
    halves = sum_of(half, blocks);
    bytes = sparse_bytes(n, wides, halves);
    if (bytes >= dense_bytes(n)) {
        memcpy(to, &dense, sizeof dense);
        memcpy(to + sizeof dense, sum, n * sizeof *sum);
        free(wide);
        return dense_bytes(n);
    }
    if (bytes) {
        memset(to + bytes - sizeof *wide, 0, sizeof *wide); /* its last bytes may hold nothing */
    }
    memcpy(to, wide, 2 * blocks * sizeof *wide);
    free(wide);
    wide_value = (float *)(void *)(to + 2 * blocks * sizeof *wide);
    wide_place = (uint16_t *)(void *)(wide_value + wides);
    half_place = wide_place + wides;
    half_value = half_place + halves;
    for (size_t b = 0; b < blocks; b++) {
        const float *block = sum + b * CMN_SELECTED_BLOCK;
        for (size_t i = 0; i < floats_of_block(n, b); i++) {
            if (is_wide(block[i])) {
                *wide_value++ = block[i];
                *wide_place++ = (uint16_t)i;
            } else if (is_half(block[i])) {
                *half_value++ = (uint16_t)(bits_of(block[i]) >> 16);
                *half_place++ = (uint16_t)i;
            }
        }
    }
    return bytes;
}

static int is_dense(size_t n, const unsigned char *from)
{
    return n && !memcmp(from, &dense, sizeof dense);
}

size_t cmn_merged_bytes(size_t n, const unsigned char *from)
{
    const uint32_t *count = (const uint32_t *)(const void *)from;
    size_t blocks = blocks_of(n);

    return is_dense(n, from)
               ? dense_bytes(n)
               : sparse_bytes(n, sum_of(count, blocks), sum_of(count + blocks, blocks));
}

size_t cmn_merged_read(float *sum, size_t n, const unsigned char *from)
{
    const uint32_t *wide = (const uint32_t *)(const void *)from;
    size_t blocks = blocks_of(n), wides, halves, w = 0, s = 0;
    const uint32_t *half = wide + blocks;
    const uint16_t *place, *value;
    const float *wide_value;

    if (is_dense(n, from)) {
        memcpy(sum, from + sizeof dense, n * sizeof *sum);
        return dense_bytes(n);
    }
    wides = sum_of(wide, blocks);
    halves = sum_of(half, blocks);
    wide_value = (const float *)(const void *)(half + blocks);
    place = (const uint16_t *)(const void *)(wide_value + wides);
    value = place + wides + halves;
    for (size_t b = 0; b < blocks; b++) {
        float *block = sum + b * CMN_SELECTED_BLOCK;
        for (size_t end = w + wide[b]; w < end; w++) {
            block[place[w]] = wide_value[w];
        }
        for (size_t end = s + half[b]; s < end; s++) {
            block[place[wides + s]] = from_bf16(value[s]);
        }
    }
    return sparse_bytes(n, wides, halves);
}

/* ---- one shard's exchange ---- */

/* What comes from one rank, or in one round, message after message. */
struct stream {
    unsigned char *to;
    size_t room, got;
    int from, tag, complete;
};

struct cmn_owners {
    MPI_Comm comm;
    int rank, ranks, tag;
    const struct cmn_schedule *by;
    int rounds, waits; /* of the allgather; a round sends what the one before has received */
    size_t n;
    unsigned char *outgoing; /* the selection's part of each rank's slice; they begin at out_at[] */
    size_t *out_at;
    unsigned char *selected; /* of the own slice: what other ranks have sent, selected_room each */
    size_t selected_room;
    unsigned char
        *merged; /* sums of the slices of rank, rank + 1, ...; they begin at merged_at[] */
    size_t *merged_at, merged_room, own_bytes;
    uint32_t *index;
    struct stream *stream; /* first those of the selections, then those of the rounds */
    MPI_Request *request;  /* of each stream, then those that send */
    MPI_Status *status;
    int *completed;
    int streams, requests, left; /* `left`: requests that are not complete */
    int there[PHASES];           /* streams that are complete */
    int round;                   /* rounds that were begun */
    enum { BEGUN, GIVEN, SUMMED, ENDED } stage;
    struct cmn_traffic *traffic;
};

int cmn_owners_pay(int ranks, size_t n, size_t k)
{
    /* Selections: (ranks - 1) * k values of 4 bytes. This way: at most k, and n in fp32. Above few ranks
     * measured selections overlap enough (docs/reference/scale.md). */
    return ranks > CMN_SCHEDULE_FEW || ((size_t)ranks - 1) * k >= k + n;
}

static size_t slice_of(const struct cmn_owners *o, int rank, size_t *at)
{
    size_t count;

    cmn_slice(o->n, o->ranks, rank, at, &count);
    return count;
}

static int rank_at(const struct cmn_owners *o, int distance)
{
    return (o->rank + distance) % o->ranks;
}

static struct cmn_round round_of(const struct cmn_owners *o, int i)
{
    return o->by->round(o->ranks, o->rounds - 1 - i);
}

static size_t messages_of(size_t bytes)
{
    return bytes / MESSAGE + 1;
}

static void open_memory(struct cmn_owners *o, size_t most)
{
    size_t ranks = (size_t)o->ranks, at, own = slice_of(o, o->rank, &at), largest = 0;
    size_t requests, sends;

    for (int r = 0; r < o->ranks; r++) {
        size_t n = slice_of(o, r, &at);
        largest = n > largest ? n : largest;
    }
    o->selected_room = cmn_selected_bytes(own, most < own ? most : own);
    o->merged_room = cmn_merged_most(largest, ranks * most);
    o->outgoing =
        cmn_malloc(ranks * blocks_of(largest) * sizeof(uint32_t) + cmn_selected_bytes(0, most), 1);
    o->selected = cmn_malloc(ranks * o->selected_room + 1, 1);
    o->merged = cmn_malloc(ranks * o->merged_room + 1, 1);
    o->out_at = cmn_calloc(ranks + 1, sizeof *o->out_at);
    o->merged_at = cmn_calloc(ranks + 1, sizeof *o->merged_at);
    o->index = cmn_malloc(most, sizeof *o->index);
    o->streams = o->ranks - 1 + o->rounds;
    /* Pairwise sends its own slice in each round, the others each slice but one once. */
    sends = ranks + (size_t)o->rounds + messages_of(cmn_selected_bytes(o->n, most + ranks)) +
            ranks * messages_of(o->merged_room);
    requests = (size_t)o->streams + sends;
    o->stream = cmn_calloc((size_t)o->streams + 1, sizeof *o->stream);
    o->request = cmn_calloc(requests, sizeof *o->request);
    o->status = cmn_calloc(requests, sizeof *o->status);
    o->completed = cmn_calloc(requests, sizeof *o->completed);
}

struct cmn_owners *cmn_owners_open(MPI_Comm comm, int tag, size_t n, size_t most,
                                   enum cmn_exchange_by by, struct cmn_traffic *traffic)
{
    struct cmn_owners *o = cmn_calloc(1, sizeof *o);

    o->traffic = traffic;
    o->comm = comm;
    o->tag = tag;
    o->n = n;
    MPI_Comm_rank(comm, &o->rank);
    MPI_Comm_size(comm, &o->ranks);
    o->by = cmn_schedule_of(by);
    o->rounds = o->by->rounds(o->ranks);
    o->waits = by != CMN_EXCHANGE_PAIRWISE;
    open_memory(o, most);
    return o;
}

void cmn_owners_close(struct cmn_owners *o)
{
    if (o) {
        free(o->outgoing);
        free(o->out_at);
        free(o->selected);
        free(o->merged);
        free(o->merged_at);
        free(o->index);
        free(o->stream);
        free(o->request);
        free(o->status);
        free(o->completed);
        free(o);
    }
}

/* ---- messages ---- */

static void receive_next(struct cmn_owners *o, int i)
{
    struct stream *s = &o->stream[i];
    size_t room = s->room - s->got < MESSAGE ? s->room - s->got : MESSAGE;

    MPI_CALL(
        MPI_Irecv(s->to + s->got, (int)room, MPI_BYTE, s->from, s->tag, o->comm, &o->request[i]));
    o->left++;
}

static void receive(struct cmn_owners *o, int i, const struct stream *s)
{
    o->stream[i] = *s;
    receive_next(o, i);
}

static void send(struct cmn_owners *o, const unsigned char *from, size_t bytes, int to, int phase)
{
    size_t part = MESSAGE;

    for (size_t at = 0; part == MESSAGE; at += part) {
        part = bytes - at < MESSAGE ? bytes - at : MESSAGE;
        MPI_CALL(MPI_Isend(from + at, (int)part, MPI_BYTE, to, o->tag + phase, o->comm,
                           &o->request[o->requests++]));
        o->left++;
        o->traffic->sent += part;
    }
}

/* ---- selections to the owners ---- */

void cmn_owners_begin(struct cmn_owners *o)
{
    o->requests = o->streams;
    o->stage = BEGUN;
    o->left = o->round = o->there[SELECTED] = o->there[MERGED] = 0;
    for (int i = 0; i < o->streams; i++) {
        o->request[i] = MPI_REQUEST_NULL;
        o->stream[i].complete = 0;
    }
    for (int d = 1; d < o->ranks; d++) {
        receive(o, d - 1,
                &(struct stream){.to = o->selected + (size_t)d * o->selected_room,
                                 .room = o->selected_room,
                                 .from = rank_at(o, d),
                                 .tag = o->tag + SELECTED});
    }
}

/* The places of the k values within the shard, rising. */
static void find_indexes(struct cmn_owners *o, const uint32_t *count, const uint16_t *place)
{
    size_t i = 0;

    for (size_t b = 0; b < blocks_of(o->n); b++) {
        for (size_t end = i + count[b]; i < end; i++) {
            o->index[i] = (uint32_t)(b * CMN_SELECTED_BLOCK + place[i]);
        }
    }
}

/* Writes `k` values, which lie in the slice of n floats that begins at `at`. Returns the bytes. */
static size_t write_part(unsigned char *to, const uint32_t *index, const uint16_t *value, size_t k,
                         size_t at, size_t n)
{
    uint32_t *count = (uint32_t *)(void *)to;
    uint16_t *place = (uint16_t *)(void *)(count + blocks_of(n));

    memset(count, 0, blocks_of(n) * sizeof *count);
    for (size_t i = 0; i < k; i++) {
        count[(index[i] - at) / CMN_SELECTED_BLOCK]++;
        place[i] = (uint16_t)((index[i] - at) % CMN_SELECTED_BLOCK);
    }
    memcpy(place + k, value, k * sizeof *value);
    return cmn_selected_bytes(n, k);
}

void cmn_owners_give(struct cmn_owners *o, const unsigned char *selected, size_t k)
{
    const uint32_t *count = (const uint32_t *)(const void *)selected;
    const uint16_t *place = (const uint16_t *)(const void *)(count + blocks_of(o->n));
    size_t i = 0;

    find_indexes(o, count, place);
    for (int r = 0; r < o->ranks; r++) {
        size_t at, n = slice_of(o, r, &at), first = i;
        while (i < k && o->index[i] < at + n) {
            i++;
        }
        o->out_at[r + 1] = o->out_at[r] + write_part(o->outgoing + o->out_at[r], o->index + first,
                                                     place + k + first, i - first, at, n);
    }
    for (int d = 1; d < o->ranks; d++) {
        int to = rank_at(o, d);
        send(o, o->outgoing + o->out_at[to], o->out_at[to + 1] - o->out_at[to], to, SELECTED);
    }
    o->stage = GIVEN;
}

/* ---- sums to all ---- */

/* What this rank has when the round begins lies from merged_at[0] to merged_at[first]; where rounds
 * do not wait each slice has a place of its own. */
static void receive_round(struct cmn_owners *o, int i)
{
    struct cmn_round is = round_of(o, i);
    size_t at = o->waits ? o->merged_at[is.first] : (size_t)is.first * o->merged_room;

    o->merged_at[is.first] = at;
    receive(o, o->ranks - 1 + i,
            &(struct stream){.to = o->merged + at,
                             .room = (size_t)is.blocks * o->merged_room,
                             .from = rank_at(o, is.distance),
                             .tag = o->tag + MERGED});
}

static void send_round(struct cmn_owners *o, int i)
{
    struct cmn_round is = round_of(o, i);
    int from = is.first - is.distance;
    size_t bytes = o->waits ? o->merged_at[from + is.blocks] - o->merged_at[from] : o->own_bytes;

    send(o, o->merged + o->merged_at[from], bytes, rank_at(o, o->ranks - is.distance), MERGED);
}

/* Begins the rounds that have all they send. */
static void begin_rounds(struct cmn_owners *o)
{
    while (o->round < o->rounds && (!o->waits || o->round == o->there[MERGED])) {
        receive_round(o, o->round);
        send_round(o, o->round++);
    }
}

/* The slices that a round has received begin one behind the other. */
static void find_slices(struct cmn_owners *o, int i)
{
    struct cmn_round is = round_of(o, i);

    for (int d = is.first; o->waits && d < is.first + is.blocks; d++) {
        size_t at, n = slice_of(o, rank_at(o, d), &at);
        o->merged_at[d + 1] = o->merged_at[d] + cmn_merged_bytes(n, o->merged + o->merged_at[d]);
    }
}

/* All ranks' selections, this one's too, in the order of the ranks. */
static void merge(struct cmn_owners *o, float *sum)
{
    size_t at, n = slice_of(o, o->rank, &at);

    for (int r = 0; r < o->ranks; r++) {
        int d = (r - o->rank + o->ranks) % o->ranks;
        cmn_selected_add(sum + at, n,
                         d ? o->selected + (size_t)d * o->selected_room
                           : o->outgoing + o->out_at[r]);
    }
    o->own_bytes = cmn_merged_write(sum + at, n, o->merged);
    o->merged_at[0] = 0;
    o->merged_at[1] = o->own_bytes;
}

static void read_all(const struct cmn_owners *o, float *sum)
{
    for (int d = 1; d < o->ranks; d++) {
        size_t at, n = slice_of(o, rank_at(o, d), &at);
        cmn_merged_read(sum + at, n, o->merged + o->merged_at[d]);
    }
}

/* ---- advancing ---- */

static void stream_came(struct cmn_owners *o, int i, const MPI_Status *status)
{
    struct stream *s = &o->stream[i];
    int bytes = 0;

    MPI_Get_count(status, MPI_BYTE, &bytes);
    s->got += (size_t)bytes;
    if (bytes == MESSAGE) {
        receive_next(o, i);
        return;
    }
    s->complete = 1;
    o->there[i < o->ranks - 1 ? SELECTED : MERGED]++;
    if (i >= o->ranks - 1) {
        find_slices(o, i - (o->ranks - 1));
    }
}

int cmn_owners_advance(struct cmn_owners *o, float *sum)
{
    int completed = 0;

    if (o->left) {
        MPI_CALL(MPI_Testsome(o->requests, o->request, &completed, o->completed, o->status));
    }
    for (int c = 0; c < completed; c++) {
        o->left--;
        o->traffic->moved++;
        if (o->completed[c] < o->streams) {
            stream_came(o, o->completed[c], &o->status[c]);
        }
    }
    if (o->stage == GIVEN && o->there[SELECTED] == o->ranks - 1) {
        merge(o, sum);
        o->stage = SUMMED;
    }
    if (o->stage == SUMMED) {
        begin_rounds(o);
    }
    if (o->stage == SUMMED && !o->left && o->there[MERGED] == o->rounds) {
        read_all(o, sum);
        o->stage = ENDED;
    }
    return o->stage == ENDED;
}

int cmn_owners_wait_for(const struct cmn_owners *o)
{
    for (int i = 0; i < o->streams; i++) {
        if (o->request[i] != MPI_REQUEST_NULL) {
            return o->stream[i].from;
        }
    }
    return -1;
}
