/* Ordered output: the ranks split a list of images, and rank 0 writes all results in the order of
 * the list.
 *
 * The list is processed in rounds. In each round each rank has a block of neighbouring images, rank
 * 0 the first block. At the end of the round rank 0, which has written its own results already,
 * receives those of the other ranks, rank by rank. So memory holds the results of only one round,
 * and the order is that of one process. */
#ifndef CMN_ORDERED_OUTPUT_H
#define CMN_ORDERED_OUTPUT_H

#include <stdio.h>

#include "mpi/topology.h"

struct cmn_ordered_output;

/* Local. Opens an output for the ranks of `t`, which must outlive it. It lasts until the process
 * ends. */
struct cmn_ordered_output *cmn_ordered_output_open(const struct cmn_topology *t);

/* Local. Opens a file for results: on rank 0 the file `name`, on other ranks a stream in memory
 * whose text is sent to that file. All ranks open the same files in the same order, before
 * cmn_ordered_output_begin(). Ends the job if a file of this name is open. Returns NULL with
 * errno. */
FILE *cmn_ordered_output_file(struct cmn_ordered_output *s, const char *name);

/* Local. Closes such a file after the last round. Only then does it replace an earlier one of its
 * name. Returns 0, or another value with errno: it is not written. */
int cmn_ordered_output_close(struct cmn_ordered_output *s, FILE *file);

/* Local. Splits a list of `images` images. What is written to the files before this call, or after
 * the last round, counts only on rank 0. */
void cmn_ordered_output_begin(struct cmn_ordered_output *s, int images);

/* Local. Return the number of this rank's images, and the index in the list of its i-th image. */
int cmn_ordered_output_images(const struct cmn_ordered_output *s);
int cmn_ordered_output_index(const struct cmn_ordered_output *s, int i);

/* Called on rank 0 with the n values of an image. */
typedef void cmn_take(float *values, int n);

/* Local. Passes an image's values to `take` (the same one in each call) on rank 0, in the order of
 * the list; values of other ranks at the end of the round. */
void cmn_ordered_output_collect(struct cmn_ordered_output *s, float *values, int n, cmn_take *take);

/* Collective and blocking if a round ends, else local. Says that this rank has finished its first
 * `done` images; after its last image it takes part in the remaining rounds. Ends the job if a file
 * cannot be written. */
void cmn_ordered_output_done(struct cmn_ordered_output *s, int done);

#endif
