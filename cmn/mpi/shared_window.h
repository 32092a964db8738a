/* shared_window: memory that the ranks of a node share, and a barrier in it.
 *
 * A window is an unnamed file (memfd): it leaves nothing behind, no other user can open it, and the
 * size of /dev/shm does not limit it. Its pages are reserved before it is used, so a lack of memory
 * is an error instead of a SIGBUS. */
#ifndef CMN_SHARED_WINDOW_H
#define CMN_SHARED_WINDOW_H

#include <stddef.h>

#include "mpi/group.h"

struct cmn_shm_barrier;
struct cmn_window;

/* Collective over the group (which must outlive the window), blocking. Opens a zeroed window with a
 * part of at least `bytes` bytes for each rank, and a common part of at least `common` bytes. The
 * largest request of the group counts. Returns 0, or -1 on all ranks with the same reason; another
 * communicator may work without a window. */
int cmn_window_open(struct cmn_window **window, const struct cmn_group *group, size_t bytes,
                    size_t common);

/* Local. Return the address of a rank's part, aligned to 64 bytes, and of the common part. The
 * ranks' parts lie at equal distances. */
void *cmn_window_part(const struct cmn_window *w, int rank);
void *cmn_window_common(const struct cmn_window *w);

/* Local. Returns whether the `bytes` bytes at `at` lie in this rank's own part. */
int cmn_window_holds(const struct cmn_window *w, const void *at, size_t bytes);

/* Collective, blocking. See cmn_shm_barrier_wait(). */
void cmn_window_barrier(struct cmn_window *w);

/* Local. Returns the barrier of cmn_window_barrier(), for waiting in steps. */
struct cmn_shm_barrier *cmn_window_barrier_of(struct cmn_window *w);

/* Local. The memory stays valid for the other ranks. `w` may be NULL. */
void cmn_window_close(struct cmn_window *w);

#endif
