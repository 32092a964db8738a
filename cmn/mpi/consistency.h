/* Consistency of ranks: what must be equal on all of them before they train together, and what no allreduce would notice. Collective,
 * blocking. A rank that differs from rank 0 ends the job, as cmn_files_compare(). */
#ifndef CMN_ALIKE_H
#define CMN_ALIKE_H

#include "mpi/topology.h"

/* The version, and the code and constants of the program's own file: other patches, another compiler, other flags. Where it was
 * built, and with which debugging information, does not count. */
void cmn_compare_program(const struct cmn_topology *t);

/* The bytes of a file. */
void cmn_compare_file(const struct cmn_topology *t, const char *file);

#endif
