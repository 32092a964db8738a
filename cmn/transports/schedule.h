/* Allreduce algorithms as tables of rounds: who sends which blocks to whom, and which algorithm
 * suits a sum. Local: nothing here sends.
 *
 * n floats are cut into as many blocks as there are ranks. In the first half (reduce-scatter) rank
 * r ends up with the sum of block r; in the second half (allgather) all ranks receive all sums. An
 * algorithm is a list of rounds. */
#ifndef CMN_SCHEDULE_H
#define CMN_SCHEDULE_H

#include <stddef.h>

#include "config/options.h"

/* One round of a reduce-scatter; all numbers are modulo the ranks. Rank r sends the `blocks` blocks
 * from number r + first on to rank r + distance. It receives as many from rank r - distance, and
 * adds them to its blocks from number r + first - distance on. The sent and the received blocks do
 * not overlap.
 * The allgather runs the same rounds backwards, the last one first: rank r sends the blocks from r
 * + first - distance on to rank r - distance, and receives those from r + first on. */
struct cmn_round {
    int distance, first, blocks;
};

struct cmn_schedule {
    const char *name;   /* as in CMN_DEBUG_EXCHANGE */
    const char *source; /* the paper that describes it */
    int at_once;        /* the rounds are independent: all of them begin together */
    int to_next;        /* each round sends one block, to the next rank */
    int (*rounds)(int ranks);
    struct cmn_round (*round)(int ranks, int i);
};

/* Local. Returns the table entry of pairwise, halving or ring; ends the job for any other value. */
const struct cmn_schedule *cmn_schedule_of(enum cmn_exchange_by by);

/* Returns the algorithm for a sum of this many bytes. The choice depends on nothing else, so all
 * ranks make the same one, and a resumed run adds in the same order. */
enum cmn_exchange_by cmn_schedule_for(int ranks, double bytes);

/* Up to this number of ranks the algorithm is always pairwise. */
enum { CMN_SCHEDULE_FEW = 8 };

#endif
