/* What the ranks hold on its way to rank 0, which writes the checkpoint, and back. Collective,
 * blocking; a lost rank ends the job. */
#ifndef CMN_CHECKPOINT_GATHER_H
#define CMN_CHECKPOINT_GATHER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/reader.h"
#include "mpi/topology.h"

/* All ranks' items become tensors of `to`, with memory (rank 0; NULL elsewhere, and where there is
 * no snapshot). The parts of a common tensor are put together. 0; -1 with a reason on rank 0 when
 * memory is short there: then nothing was sent. */
int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t);

/* Fills the items from a file (rank 0's; NULL elsewhere), and their `got`. A file that lacks what
 * is not optional ends the job. */
void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t);

#endif
