/* files: files that rank 0 reads for all ranks, texts that must be equal on all ranks, and checks
 * of files and folders. */
#ifndef CMN_FILES_H
#define CMN_FILES_H

#include <stdint.h>
#include <stdio.h>

#include "mpi/topology.h"

/* Collective, blocking. Rank 0 reads the whole file, and every rank gets a stream over a copy of
 * it. So lists are equal everywhere, and only rank 0's host needs them. The caller closes the
 * stream. If the file cannot be read, returns NULL on all ranks, with a reason and with rank 0's
 * errno. */
FILE *cmn_files_broadcast(const struct cmn_topology *t, const char *name);

/* Collective, blocking. Compares lines of text with rank 0's. A rank that differs ends the job with
 * a message that names `what` and the first line that differs; the other ranks return meanwhile. */
void cmn_files_compare(const char *what, const char *text, const struct cmn_topology *t);

/* Local. Returns a stream over a copy of the text in anonymous memory, which fclose() frees. Ends
 * the job if there is no memory. */
FILE *cmn_files_stream(const char *text, size_t bytes);

/* Local. Returns the whole text of a stream over memory. The stream is at its beginning before and
 * afterwards. The caller frees the text. */
char *cmn_files_text(FILE *file);

/* Local. Reads a regular file and sets *bytes and *hash, a hash of its content; both are 0 if it
 * cannot be read. Returns 0, or -1 with errno. */
int cmn_files_hash(const char *name, size_t *bytes, uint64_t *hash);

/* Local. Counts the lines that are not blank, which are those that Darknet's get_paths takes.
 * Rewinds the stream. */
size_t cmn_files_count_lines(FILE *file);

/* Local. Creates a folder and its missing parents. Returns 0, or -1 with errno. */
int cmn_files_make_folder(const char *folder);

/* Local. Returns why no file can be created in this folder, or NULL if one can, or if the folder is
 * missing. */
const char *cmn_files_unwritable(const char *folder);

/* Local. Makes sure that files can be created in this folder, or ends the job. Creates the folder
 * if it is missing: then returns 1, otherwise 0. */
int cmn_files_make_writable(const char *folder);

/* Local. Returns 0 if a file may be overwritten, or -1 with a reason. It may if it is missing,
 * empty, or one of ours: then it begins with `begin` and ends with the `bytes` bytes of `end`, each
 * up to 127 bytes. `what` names this kind of file. */
int cmn_files_replaceable(const char *what, const char *file, const char *begin, const void *end,
                          size_t bytes);

#endif
