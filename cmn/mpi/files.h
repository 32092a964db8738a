/* Files that rank 0 reads for all ranks, texts that must be equal on all of them, and checks of
 * files and folders. */
#ifndef CMN_FILES_H
#define CMN_FILES_H

#include <stdio.h>

#include "mpi/topology.h"

/* Collective, blocking. Rank 0 reads the whole file; every rank gets a stream over a copy of it.
 * Lists are then equal everywhere, and need to be on rank 0's host only. The caller closes it.
 * NULL on all ranks, with a reason and errno as rank 0 saw it, when it cannot be read. */
FILE *cmn_files_broadcast(const struct cmn_topology *t, const char *name);

/* Collective, blocking. Compares lines of text with rank 0's. A rank that differs ends the job
 * with a message that names `what` and the first line that differs; the others return meanwhile. */
void cmn_files_compare(const char *what, const char *text, const struct cmn_topology *t);

/* Local. The whole text of a stream over memory, which is at its beginning before and afterwards.
 * The caller frees. */
char *cmn_files_text(FILE *file);

/* Local. The lines that are not blank, as Darknet's get_paths takes them; rewinds the stream. */
size_t cmn_files_count_lines(FILE *file);

/* Local. Makes a folder and those above it, as far as they are missing. 0, or -1 with errno. */
int cmn_files_make_folder(const char *folder);

/* Local. Why no file can be made in this folder; NULL: it can, or the folder is missing. */
const char *cmn_files_unwritable(const char *folder);

/* Local. Makes sure that files can be made in this folder, or ends the job; creates it when it
 * is missing: then 1, else 0. */
int cmn_files_make_writable(const char *folder);

/* Local. Whether a file may be written anew: it is missing, empty, or begins with `begin` and ends
 * with the `bytes` of `end`, as each `what` of ours does (up to 127 bytes each). 0, or -1 with a
 * reason. */
int cmn_files_replaceable(const char *what, const char *file, const char *begin, const void *end,
                          size_t bytes);

#endif
