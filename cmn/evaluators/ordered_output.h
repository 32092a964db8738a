/* Ordered output: the ranks split a list of images, and rank 0 writes all results in the order of
 * the list.
 *
 * The list is worked off in rounds. In a round each rank has a block of neighbouring images, rank
 * 0 the first one; at its end rank 0, which has written its own results already, receives the
 * other ranks', rank by rank. So memory holds the results of one round only, and the order is that
 * of one process. */
#ifndef CMN_ORDERED_OUTPUT_H
#define CMN_ORDERED_OUTPUT_H

#include <stdio.h>

#include "mpi/topology.h"

struct cmn_ordered_output;

/* Local. For the ranks of `t`, which the caller keeps. It lasts until the process ends. */
struct cmn_ordered_output *cmn_ordered_output_open(const struct cmn_topology *t);

/* Local. Opens a file for results: on rank 0 the file `name`, elsewhere a stream whose text goes
 * into that file. All ranks open the same files in the same order, before
 * cmn_ordered_output_begin(). The caller closes it after the last round. NULL with errno. */
FILE *cmn_ordered_output_file(struct cmn_ordered_output *s, const char *name);

/* Local. The list has so many images; splits them. What the files hold before this call, and what
 * is written after the last round, counts on rank 0 alone. */
void cmn_ordered_output_begin(struct cmn_ordered_output *s, int images);

/* Local. The number of this rank's images, and the index of its i-th one in the list. */
int cmn_ordered_output_images(const struct cmn_ordered_output *s);
int cmn_ordered_output_index(const struct cmn_ordered_output *s, int i);

/* What rank 0 does with the n values of an image. */
typedef void cmn_take(float *values, int n);

/* Local. Hands an image's values to `take` (the same one in each call) on rank 0, in the order of
 * the list; this rank's own at the end of the round where it is not rank 0. */
void cmn_ordered_output_collect(struct cmn_ordered_output *s, float *values, int n, cmn_take *take);

/* Collective and blocking where a round ends, else local. This rank has done its first `done`
 * images; once these are all, it takes part in the remaining rounds. Ends the job when a file
 * cannot be written. */
void cmn_ordered_output_done(struct cmn_ordered_output *s, int done);

#endif
