/* A stop request may be followed by SIGKILL: 0.25 s later where mpiexec is that of Open MPI 5, 1 s
 * where it is Open MPI 4's. The end that all ranks make together needs the rest of the iteration,
 * an exchange, and writes until the disk has it. So rank 0 saves what it has at once; the common
 * end then replaces the file, where there is time for it. */
#ifndef CMN_EARLY_SAVE_H
#define CMN_EARLY_SAVE_H

#include "trainer/model.h"

/* Local. Between two layers, so that no update is under way: rank 0 writes the weights, those after
 * that iteration and so many images, under the name that they have at the end of a training,
 * without waiting for the disk. Its rolling statistics are scaled as at the end of a step. Weights
 * that are NaN or Inf are not saved, and nothing is where a rank's error ends the job. */
void cmn_early_save(struct cmn_model *m, long iteration, size_t seen,
                    const struct cmn_rolling_factor *statistics);

#endif
