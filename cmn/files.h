/* Files that rank 0 reads for all, and folders that must be writable. */
#ifndef CMN_FILES_H
#define CMN_FILES_H

#include <stdio.h>

#include "topology.h"

/* Collective, blocking. Rank 0 reads the whole file; every rank gets a stream over a copy of it.
 * Lists are then equal everywhere, and need to be on rank 0's host only. The caller closes it.
 * NULL on all ranks, with a reason and errno as rank 0 saw it, when it cannot be read. */
FILE *cmn_files_share(const struct cmn_topology *t, const char *name);

/* Local. The lines of a cfg without blanks and comments. The caller frees. NULL with a reason. */
char *cmn_files_cfg_text(const char *name);

/* Local. Makes sure that files can be made in this folder; creates it when it is missing.
 * 0 (*created tells), or -1 with a reason. */
int cmn_files_writable(const char *folder, int *created);

#endif
