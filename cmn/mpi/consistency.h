/* consistency: what must be equal on all ranks before they train together, and what no allreduce
 * would notice. Collective, blocking.
 *
 * A rank that differs from rank 0 ends the job, as in cmn_files_compare(). */
#ifndef CMN_CONSISTENCY_H
#define CMN_CONSISTENCY_H

#include "mpi/topology.h"

/* Compares the version, and a hash of the program's code and constants. This finds other patches,
 * compilers and flags. The build folder and debugging information do not count. */
void cmn_compare_program(const struct cmn_topology *t);

/* Compares the bytes of a file that every rank reads by itself. */
void cmn_compare_file(const struct cmn_topology *t, const char *file);

#endif
