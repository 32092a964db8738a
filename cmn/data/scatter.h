/* Images and labels that only rank 0's host has (cmn_data=scatter): before the first batch each
 * other host gets those that its ranks need, once, into a folder of its own below cmn_cache_dir.
 *
 * Rank 0 reads the files in the order of the lists and packs them into messages of some MiB, which
 * go from the first rank of a node to that of the next one: rank 0 sends each byte once, whatever
 * the number of hosts. A thread of each of these ranks reads, or writes, while messages travel.
 *
 * A copy has the size and the time of last change of rank 0's file, as rsync makes them. It gets
 * its name when it is whole, so a start finds by these two which files a host lacks, also after a
 * transfer that was killed. Two hosts that share the folder replace a copy by an equal one. The
 * name of a copy is a hash of the file's name in the list: lists may hold any path. */
#ifndef CMN_SCATTER_H
#define CMN_SCATTER_H

#include "mpi/topology.h"

/* Collective, blocking. Makes a folder for this training's files below `cache`, on each host except
 * rank 0's, or ends the job. With one node nothing happens, here and in the other calls. `t` must
 * outlive the other calls. */
void cmn_scatter_open(const struct cmn_topology *t, const char *cache);

/* Local; all ranks add the same names in the same order. This file is part of the next
 * cmn_scatter_send(). `wanted`: this rank reads it. `optional`: rank 0's host may lack it. */
void cmn_scatter_add(const char *name, int wanted, int optional);

/* Collective, blocking. Each host gets those of the added files that its ranks want and that it
 * lacks. Ends the job where rank 0's host lacks a file or a disk is full. With `resumed` it also
 * ends the job where the content of a file is no longer what the host has; otherwise the new
 * content replaces the old one. With `bar` rank 0 draws a progress bar. */
void cmn_scatter_send(int resumed, int bar);

/* Local, thread-safe. Where this host has the file: `name` itself, or on another host than rank 0's
 * the name of its copy, which is valid until the thread's next call. */
const char *cmn_scatter_path(const char *name);

#endif
