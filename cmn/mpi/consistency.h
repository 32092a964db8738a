/* What ranks must have alike before they train together, and what no exchange would notice: the program, and files that each of
 * them reads by itself. Collective, blocking. 0, or -1 with a reason on each rank that differs from rank 0, as
 * cmn_files_compare(). */
#ifndef CMN_ALIKE_H
#define CMN_ALIKE_H

#include "mpi/topology.h"

/* The version, and the code and constants of the program's own file: other patches, another compiler, other flags. Where it was
 * built, and with which debugging information, does not count. */
int cmn_compare_program(const struct cmn_topology *t);

/* The bytes of a file. */
int cmn_compare_file(const struct cmn_topology *t, const char *file);

#endif
