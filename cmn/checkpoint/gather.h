/* Moves the items of all ranks to rank 0, which writes the checkpoint, and back. Collective,
 * blocking; a lost rank ends the job. */
#ifndef CMN_CHECKPOINT_GATHER_H
#define CMN_CHECKPOINT_GATHER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/reader.h"
#include "mpi/topology.h"

/* Makes tensors of `to` from the items of all ranks, and allocates and fills their memory. The
 * parts of a common tensor are put together. `to` is rank 0's snapshot, or NULL if rank 0 has none;
 * NULL on the other ranks. 0; -1 on rank 0 if there is no snapshot, or with a reason if memory is
 * short: then no data were sent. The other ranks always return 0. */
int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t);

/* Fills the items and their `got` from a file, which only rank 0 has (NULL on other ranks). Ends
 * the job if the file lacks an item that is not optional. */
void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t);

#endif
