/* Copies images and labels that only rank 0's host has (cmn_data=scatter): before the first batch
 * each other host receives the files that its ranks need, once, into a folder of its own below
 * cmn_cache_dir.
 *
 * Rank 0 reads the files in the order of the lists and packs them into messages of some MiB. The
 * first rank of each node passes them to that of the next node, so rank 0 sends each byte once, for
 * any number of hosts. On each of these ranks a thread reads, or writes, files while messages are
 * in flight.
 *
 * A copy gets the size and modification time of rank 0's file, as with rsync. It gets its name when
 * it is complete, so the next start finds by size and time which files a host lacks, also after a
 * transfer was killed. Two hosts that share the folder replace a copy by an equal one. The name of
 * a copy is a hash of the file's name in the list, so lists may contain any path. */
#ifndef CMN_SCATTER_H
#define CMN_SCATTER_H

#include "mpi/topology.h"

/* Collective, blocking. Creates a folder for this training's files below `cache` on each host
 * except rank 0's, or ends the job. With one node nothing happens, here and in the other calls. `t`
 * must outlive the other calls. */
void cmn_scatter_open(const struct cmn_topology *t, const char *cache);

/* Local; all ranks add the same names in the same order. Adds this file to the next
 * cmn_scatter_send(). `wanted`: this rank reads it. `optional`: rank 0's host may lack it. */
void cmn_scatter_add(const char *name, int wanted, int optional);

/* Collective, blocking. Sends each host those of the added files that its ranks want and that it
 * lacks. Ends the job if rank 0's host lacks a file or a disk is full. If the content of a file
 * differs from the copy that a host has, the new content replaces the copy; with `resumed` it ends
 * the job instead. With `bar` rank 0 draws a progress bar. */
void cmn_scatter_send(int resumed, int bar);

/* Local, thread-safe. Returns the path of the file on this host: `name` itself, or, on hosts other
 * than rank 0's, the path of its copy, which is valid until the thread's next call. */
const char *cmn_scatter_path(const char *name);

/* Local. Ends the job if one of this rank's part of n images is not there: before an epoch is
 * trained that the first validation would lose. */
void cmn_scatter_require(char *const *paths, int n, const struct cmn_topology *t);

#endif
