/* A list of images shared by the ranks, and what each of them finds out, put together on rank 0 in the order of the list.
 *
 * The list is worked off in rounds: in a round each rank has a block of neighbouring images, rank 0 the first one. At
 * its end rank 0, which has written of its own block already, receives what the others have to say of theirs, rank by
 * rank. So only a round's results are kept in memory, and the order is that of one process. */
#ifndef CMN_SHARE_H
#define CMN_SHARE_H

#include <stddef.h>
#include <stdio.h>

#include "mpi/topology.h"

struct cmn_ordered_output;

/* Local. For the ranks of `t`, which must outlive it. NULL with a reason when memory is short. */
struct cmn_ordered_output *cmn_ordered_output_open(const struct cmn_topology *t);

/* Local. A file for results: on rank 0 the file `name`, elsewhere a stream whose text goes into that file. Opened by all
 * ranks in the same order, before the images begin. The caller closes it, before the share. NULL with errno. */
FILE *cmn_ordered_output_file(struct cmn_ordered_output *s, const char *name);

/* Local. The images begin: there are so many in the list. What the files hold by now, and what is written after the last
 * round, rank 0 writes alone. 0, or -1 with a reason. */
int cmn_ordered_output_begin(struct cmn_ordered_output *s, int images);

/* Local. How many of the images this rank has, and the number of its i-th one in the list. */
int cmn_ordered_output_images(const struct cmn_ordered_output *s);
int cmn_ordered_output_index(const struct cmn_ordered_output *s, int i);

/* What is done with the n values of an image. */
typedef void cmn_take(float *values, int n);

/* Local. Calls `take` (the same one each time) on rank 0, in the order of the images. 0, or -1 with a reason. */
int cmn_ordered_output_tell(struct cmn_ordered_output *s, float *values, int n, cmn_take *take);

/* Collective where a round ends, blocking then. This rank has done its first `done` images; when these are all it takes
 * part in the rounds that are left. 0, or -1 with a reason. */
int cmn_ordered_output_done(struct cmn_ordered_output *s, int done);

/* Local. */
void cmn_ordered_output_close(struct cmn_ordered_output *s);

#endif
