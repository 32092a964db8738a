#include "transports/sums.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/group.h"
#include "transports/rounds.h"

/* How a job is done; jobs of one way end in order. */
enum way { PAIRWISE, ROUNDS, MPI, WAYS };

struct cmn_sums {
    MPI_Comm comm;
    int rank, ranks;
    long timeout; /* seconds; 0: no limit */
    enum cmn_exchange_by by;
    struct cmn_link link, said; /* auto chooses by it; what say_choice() has said */
    struct cmn_pairwise *pairwise;
    struct cmn_rounds *rounds;
    /* Calls of MPI_Iallreduce in flight: a ring of `room`, from `returned` to `called`. */
    struct call {
        MPI_Request request;
        int last; /* of its job */
    } * call;
    long room, called, returned, mpi_ended;
    unsigned long long mpi_sent;
    /* Jobs are numbered since open: the way of each from `ended` to `begun`, a ring. */
    unsigned char *way;
    long ways, begun, ended;
    long taken[WAYS]; /* jobs of each way that count as ended */
};

/* ---- the network ---- */

enum { TAG = 3, TIMES = 5, BURST = 32, BLOCK = 128 * 1024, SMALL = 8 };

/* Seconds in which every rank sends `messages` of so many bytes `distance` ranks on, and gets as
 * many. */
static double shift(MPI_Comm comm, int distance, int messages, int bytes, char *memory)
{
    MPI_Request request[2 * BURST];
    int rank, ranks;
    double began;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    MPI_CALL(MPI_Barrier(comm));
    began = cmn_clock();
    for (int i = 0; i < messages; i++) {
        MPI_CALL(MPI_Irecv(memory + (size_t)i * (size_t)bytes, bytes, MPI_BYTE,
                           (rank - distance + ranks) % ranks, TAG, comm, &request[2 * i]));
        MPI_CALL(MPI_Isend(memory + (size_t)(BURST + i) * (size_t)bytes, bytes, MPI_BYTE,
                           (rank + distance) % ranks, TAG, comm, &request[2 * i + 1]));
    }
    MPI_CALL(MPI_Waitall(2 * messages, request, MPI_STATUSES_IGNORE));
    return cmn_clock() - began;
}

static double best_shift(MPI_Comm comm, int distance, int messages, int bytes, char *memory)
{
    double best = 0;

    for (int i = 0; i < TIMES; i++) {
        double seconds = shift(comm, distance, messages, bytes, memory);
        if (i <= 1 || seconds < best) { /* the first one only warms up */
            best = seconds;
        }
    }
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE, MPI_MAX, comm));
    return best;
}

void cmn_link_measure(MPI_Comm comm, struct cmn_link *link)
{
    const int bytes = CMN_SCHEDULE_MESSAGE, many = BLOCK * SMALL / CMN_SCHEDULE_MESSAGE;
    char *memory = cmn_calloc((size_t)2 * BURST, (size_t)bytes);
    double one, burst;
    int ranks;

    MPI_Comm_size(comm, &ranks);
    one = best_shift(comm, ranks / 2, 1, SMALL, memory);
    burst = best_shift(comm, ranks / 2, BURST, SMALL, memory);
    link->latency = (float)one;
    link->message = (float)(burst > one ? (burst - one) / (BURST - 1) : 0);
    link->near = (float)(best_shift(comm, 1, many, bytes, memory) / ((double)many * bytes));
    link->far = (float)(best_shift(comm, ranks / 2, many, bytes, memory) / ((double)many * bytes));
    free(memory);
    MPI_CALL(MPI_Bcast(link, sizeof *link, MPI_BYTE, 0, comm));
}

/* Whether it was said for so many ranks: communicators that auto tries, and the streams of a
 * compressor, say the same. */
static int is_said(int ranks, int restored)
{
    static int said[2];
    int is = said[restored] == ranks;

    said[restored] = ranks;
    return is;
}

/* One line of what auto takes for two lengths, and why. */
static void say_choice(struct cmn_sums *s, int restored)
{
    static const double bytes[] = {64 * 1024, 4 * 1024 * 1024};
    char text[2][96];

    s->said = s->link;
    if (is_said(s->ranks, restored)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        enum cmn_exchange_by by = cmn_schedule_best(s->ranks, bytes[i], &s->link);
        snprintf(text[i], sizeof text[i], "%s %s in %.2f ms", i ? "4 MiB by" : "64 KiB by",
                 cmn_schedule_of(by)->name,
                 1e3 * cmn_schedule_seconds(by, s->ranks, bytes[i], &s->link));
    }
    cmn_say("exchange among %d ranks%s: %s, %s as predicted from %.0f us latency, %.1f us a "
            "message, %.0f MB/s to the next and %.0f MB/s to a far one",
            s->ranks, restored ? ", chosen as in the run before" : "", text[0], text[1],
            1e6 * (double)s->link.latency, 1e6 * (double)s->link.message,
            1e-6 / (double)s->link.near, 1e-6 / (double)s->link.far);
}

struct cmn_link *cmn_sums_link(struct cmn_sums *s)
{
    return s->by == CMN_EXCHANGE_AUTO && s->ranks > CMN_SCHEDULE_FEW ? &s->link : NULL;
}

/* ---- MPI's own ---- */

static void begin_mpi(struct cmn_sums *s, const struct cmn_sum *sum)
{
    size_t at = 0, own;

    do {
        size_t left = sum->n - at, n = left < CMN_MPI_CHUNK ? left : CMN_MPI_CHUNK;
        struct call *c;
        if (s->called - s->returned == s->room) {
            struct call *more = cmn_calloc(2 * (size_t)s->room, sizeof *more);
            for (long i = s->returned; i < s->called; i++) {
                more[i % (2 * s->room)] = s->call[i % s->room];
            }
            free(s->call);
            s->call = more;
            s->room *= 2;
        }
        c = &s->call[s->called++ % s->room];
        MPI_CALL(MPI_Iallreduce(MPI_IN_PLACE, sum->data + at, (int)n, MPI_FLOAT, MPI_SUM, s->comm,
                                &c->request));
        at += n;
        c->last = at == sum->n;
    } while (at < sum->n);
    cmn_slice(sum->n, s->ranks, s->rank, &at, &own);
    s->mpi_sent += sizeof(float) * (sum->n - own + (size_t)(s->ranks - 1) * own);
}

static long progress_mpi(struct cmn_sums *s)
{
    int there = 1;

    while (s->returned < s->called && there) {
        struct call *c = &s->call[s->returned % s->room];
        MPI_CALL(MPI_Test(&c->request, &there, MPI_STATUS_IGNORE));
        s->returned += there;
        s->mpi_ended += there && c->last;
    }
    return s->mpi_ended;
}

/* ---- all of them ---- */

struct cmn_sums *cmn_sums_open(MPI_Comm comm, const struct cmn_options *o, int waits)
{
    struct cmn_sums *s = cmn_calloc(1, sizeof *s);

    s->comm = comm;
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->ranks);
    s->timeout = waits ? 0 : o->timeout;
    s->by = (enum cmn_exchange_by)o->exchange;
    s->pairwise = cmn_pairwise_open(comm, s->timeout);
    s->rounds = cmn_rounds_open(comm);
    s->room = s->ways = 16;
    s->call = cmn_calloc((size_t)s->room, sizeof *s->call);
    s->way = cmn_calloc((size_t)s->ways, 1);
    if (cmn_sums_link(s)) {
        cmn_link_measure(comm, &s->link);
        say_choice(s, 0);
    }
    return s;
}

void cmn_sums_close(struct cmn_sums *s)
{
    if (s) {
        cmn_pairwise_close(s->pairwise);
        cmn_rounds_close(s->rounds);
        free(s->call);
        free(s->way);
    }
    free(s);
}

static void note_way(struct cmn_sums *s, enum way way)
{
    if (s->begun - s->ended == s->ways) {
        unsigned char *more = cmn_calloc(2 * (size_t)s->ways, 1);
        for (long i = s->ended; i < s->begun; i++) {
            more[i % (2 * s->ways)] = s->way[i % s->ways];
        }
        free(s->way);
        s->way = more;
        s->ways *= 2;
    }
    s->way[s->begun++ % s->ways] = (unsigned char)way;
}

void cmn_sums_begin(struct cmn_sums *s, const struct cmn_sum *sum)
{
    const struct cmn_pairwise_job job = {.data = sum->data,
                                         .n = sum->n,
                                         .slices = s->ranks,
                                         .what = CMN_REDUCE_SCATTER | CMN_ALLGATHER,
                                         .dtype = sum->dtype,
                                         .error = sum->error};
    enum cmn_exchange_by by = s->by;

    if (by == CMN_EXCHANGE_AUTO) {
        double bytes = (double)sum->n * (sum->dtype == CMN_FP32 ? sizeof(float) : sizeof(uint16_t));
        if (memcmp(&s->link, &s->said, sizeof s->link)) {
            say_choice(s, 1); /* a checkpoint has filled it */
        }
        by = cmn_schedule_best(s->ranks, bytes, &s->link);
    }
    if (by == CMN_EXCHANGE_MPI && sum->dtype != CMN_FP32) {
        cmn_fatal("exchange: MPI sums 32 bits: cmn_exchange=mpi does not go with cmn_compress=fp16 "
                  "or bf16");
    }
    if (by == CMN_EXCHANGE_MPI) {
        begin_mpi(s, sum);
        note_way(s, MPI);
    } else if (by == CMN_EXCHANGE_PAIRWISE) {
        cmn_pairwise_begin(s->pairwise, &job);
        note_way(s, PAIRWISE);
    } else {
        cmn_rounds_begin(s->rounds, &job, by);
        note_way(s, ROUNDS);
    }
}

/* Advances without waiting. */
static void advance(struct cmn_sums *s)
{
    long now[WAYS] = {cmn_pairwise_progress(s->pairwise, 0), cmn_rounds_progress(s->rounds),
                      progress_mpi(s)};

    while (s->ended < s->begun) {
        int way = s->way[s->ended % s->ways];
        if (s->taken[way] == now[way]) {
            return;
        }
        s->taken[way]++;
        s->ended++;
    }
}

unsigned long long cmn_sums_sent(const struct cmn_sums *s)
{
    return cmn_pairwise_sent(s->pairwise) + cmn_rounds_sent(s->rounds) + s->mpi_sent;
}

void cmn_sums_stalled(const struct cmn_sums *s, long seconds)
{
    int way = s->ended < s->begun ? s->way[s->ended % s->ways] : PAIRWISE,
        missing = way == ROUNDS ? cmn_rounds_missing(s->rounds) : -1;

    if (missing >= 0) {
        cmn_nothing_from(s->comm, missing, seconds);
    } else if (way == PAIRWISE) {
        cmn_pairwise_stalled(s->pairwise, seconds);
    }
    cmn_fatal_lost("exchange: %s for %ld s (cmn_timeout)",
                   way == MPI ? "MPI_Iallreduce did not end" : "no message was sent", seconds);
}

long cmn_sums_progress(struct cmn_sums *s, long until)
{
    unsigned long long before = 0;
    double since = 0;

    for (;;) {
        unsigned long long now;
        advance(s);
        if (s->ended >= until) {
            return s->ended;
        }
        now = cmn_sums_sent(s) + (unsigned long long)s->ended + 1;
        if (now != before) {
            before = now;
            since = s->timeout ? cmn_clock() : 0;
        } else if (s->timeout && cmn_status_timed_out(cmn_clock() - since, s->timeout)) {
            cmn_sums_stalled(s, s->timeout);
        }
        sched_yield();
    }
}

void cmn_sums_run(struct cmn_sums *s, float *data, size_t n)
{
    const struct cmn_sum sum = {.data = data, .n = n, .dtype = CMN_FP32};

    cmn_sums_begin(s, &sum);
    cmn_sums_progress(s, s->begun);
}

void cmn_sums_run_slices(struct cmn_sums *s, float *data, size_t n, int slices, int what)
{
    cmn_pairwise_run(s->pairwise, data, n, slices, what);
    s->taken[PAIRWISE]++;
}
