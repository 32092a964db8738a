/* Memory that the ranks of a node share, and a barrier in it.
 *
 * A window is a file without a name (memfd): it leaves nothing behind, no other user can open it,
 * and the size of /dev/shm does not bound it. Its pages are reserved before it is used, so a lack
 * of memory is an error and no SIGBUS. */
#ifndef CMN_SHARED_WINDOW_H
#define CMN_SHARED_WINDOW_H

#include <stddef.h>

#include "mpi/group.h"

struct cmn_shm_barrier;
struct cmn_window;

/* Collective over the group (which must outlive the window), blocking. A zeroed window with a
 * part of at least `bytes` bytes for each rank and one of at least `common` bytes for all; the
 * largest request of the group counts. 0, or -1 on all ranks with one reason: another
 * communicator may do without. */
int cmn_window_open(struct cmn_window **window, const struct cmn_group *group, size_t bytes,
                    size_t common);

/* Local. Begin of the part of a rank of the group, aligned to 64 bytes. Parts lie at equal
 * distances. */
void *cmn_window_part(const struct cmn_window *w, int rank);
void *cmn_window_common(const struct cmn_window *w);

/* Local. Whether `bytes` bytes from `at` lie in this rank's own part. */
int cmn_window_holds(const struct cmn_window *w, const void *at, size_t bytes);

/* Collective, blocking. See cmn_shm_barrier_wait(). */
void cmn_window_barrier(struct cmn_window *w);

/* Local. The barrier that cmn_window_barrier() waits at: for waiting in steps. */
struct cmn_shm_barrier *cmn_window_barrier_of(struct cmn_window *w);

/* Local. The memory of other ranks stays valid for them. NULL is allowed. */
void cmn_window_close(struct cmn_window *w);

#endif
