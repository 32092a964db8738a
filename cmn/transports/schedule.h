/* Allreduces in rounds: who sends which blocks to whom, and which algorithm suits a sum. Local:
 * nothing here sends.
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
    const char *name;   /* as CMN_DEBUG_EXCHANGE has it */
    const char *source; /* paper */
    int at_once;        /* the rounds do not need each other: all begin together */
    int to_next;        /* each round sends one block */
    int (*rounds)(int ranks);
    struct cmn_round (*round)(int ranks, int i);
};

/* Pairwise, halving or ring. */
const struct cmn_schedule *cmn_schedule_of(enum cmn_exchange_by by);

/* The algorithm for a sum of so many bytes on so many ranks. It depends on nothing else, so all ranks
 * choose the same one, and a run that resumes adds in the same order. */
enum cmn_exchange_by cmn_schedule_for(int ranks, double bytes);

/* Up to so many ranks it is always pairwise. */
enum { CMN_SCHEDULE_FEW = 8 };

#endif
