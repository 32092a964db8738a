/* Allreduces in rounds: who sends which blocks to whom, how much that is, and about how long it
 * takes. Local: nothing here sends.
 *
 * n floats are cut into as many blocks as there are ranks; rank r ends up with the sum of block r
 * (reduce-scatter), and then all get all sums (allgather). An algorithm is a list of rounds. */
#ifndef CMN_SCHEDULE_H
#define CMN_SCHEDULE_H

#include <stddef.h>

#include "config/options.h"

/* One round of a reduce-scatter: rank r sends its blocks from r + first on to rank r + distance,
 * and adds what it receives from rank r - distance to its blocks from r + first - distance on; all
 * modulo the ranks. Sent and received blocks are others.
 * The allgather is the same backwards, last round first: rank r sends the blocks from
 * r + first - distance on to rank r - distance, and gets those from r + first on. */
struct cmn_round {
    int distance, first, blocks;
};

struct cmn_schedule {
    const char *name;   /* as cmn_exchange has it */
    const char *source; /* paper */
    int (*rounds)(int ranks);
    struct cmn_round (*round)(int ranks, int i);
};

/* Pairwise, halving or ring. */
const struct cmn_schedule *cmn_schedule_of(enum cmn_exchange_by by);

/* What a rank sends in an allreduce, reduce-scatter and allgather together. */
struct cmn_schedule_count {
    long rounds; /* one after the other */
    long peers;  /* messages, before they are cut into chunks */
    /* Blocks sent to the next rank, and to ranks farther away. */
    long near, far;
};

struct cmn_schedule_count cmn_schedule_count(enum cmn_exchange_by by, int ranks);

/* What a network does, as cmn_link_measure() (sums.h) finds it. Floats, as checkpoints keep it. */
struct cmn_link {
    float latency;   /* seconds until a message of a few bytes is there */
    float message;   /* seconds that a rank spends on each message */
    float near, far; /* seconds a byte when every rank sends to the next one, or half way round */
};

/* Bytes that the model takes for one message (the chunks of pairwise.c and rounds.c). */
enum { CMN_SCHEDULE_MESSAGE = 60 * 1024 };

/* Seconds of an allreduce of so many bytes, by a model: a round takes the latency, each message
 * its time, each byte the link's. Additions and contention are left out. */
double cmn_schedule_seconds(enum cmn_exchange_by by, int ranks, double bytes,
                            const struct cmn_link *link);

/* Up to so many ranks the choice is always pairwise: it has few messages then, and its sums have
 * the same bits in every run, whatever is measured. */
enum { CMN_SCHEDULE_FEW = 8 };

/* The fastest by the model; another one than pairwise only if it is 15 % faster. */
enum cmn_exchange_by cmn_schedule_best(int ranks, double bytes, const struct cmn_link *link);

#endif
