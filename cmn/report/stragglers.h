/* Stragglers: the ranks that make the others wait, and the cause. Local. */
#ifndef CMN_STRAGGLERS_H
#define CMN_STRAGGLERS_H

#include <stdio.h>

#include "report/row.h"

struct cmn_straggler {
    int uneven;        /* the own time of a rank, late or not, is over 1.1 times the lower median */
    int rank;          /* the slowest late rank; -1: no rank is late */
    int more;          /* number of other late ranks */
    const char *by;    /* "compute" or "load": the one in which it loses more time; static */
    double its, usual; /* ms per step in `by`: this rank's, and the median of the ranks on time */
};

/* Finds the late ranks. A rank's own time is compute + load; its excess is its own time minus the
 * lower median of all ranks' own times. A rank is late if all of these hold:
 *   - its excess is over 20 % of that median and over 1 ms per step;
 *   - its excess is at least a tenth of its own time + wait;
 *   - it waits less than the median of the ranks on time, by at least half of the excess.
 * A row of fewer than five steps has no straggler, and is not uneven. */
void cmn_straggler_find(const struct cmn_rank_times *rank, int ranks, long steps,
                        struct cmn_straggler *s);

/* Prints the line below a row of the table: ms per step of each rank (of more than eight ranks: of
 * the fastest, the median and the slowest one by their own time), and the straggler. */
void cmn_ranks_line(FILE *out, const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s);

#endif
