/* Stragglers: which ranks make the others wait, and by what. Local. */
#ifndef CMN_STRAGGLERS_H
#define CMN_STRAGGLERS_H

#include <stdio.h>

#include "report/row.h"

struct cmn_straggler {
    int rank;          /* the slowest of them; -1: there is none */
    int more;          /* number of other late ranks */
    const char *by;    /* "compute" or "load": where it loses more */
    double its, usual; /* ms per step: this rank's, and the median of the ranks */
};

/* Compares each rank's own time (compute + load) with the lower median of the ranks. A rank is late
 * when it takes over 20 % and over 1 ms per step longer, which is a tenth of the step at least, and
 * when the ranks that are not late wait the longer for it, by half of that at least. Rows of fewer
 * than five steps have no straggler. */
void cmn_straggler_find(const struct cmn_rank_times *rank, int ranks, long steps,
                        struct cmn_straggler *s);

/* Prints the line below a row of the table: ms per step of each rank (above eight ranks: least and
 * most), and the straggler. */
void cmn_ranks_line(FILE *out, const struct cmn_rank_times *rank, int ranks, long steps,
                    const struct cmn_straggler *s);

#endif
