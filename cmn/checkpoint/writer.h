/* The writer of checkpoints: a thread writes one at a time while the training continues. Local. */
#ifndef CMN_CHECKPOINT_WRITER_H
#define CMN_CHECKPOINT_WRITER_H

#include <stddef.h>

#include "checkpoint/format.h"

struct cmn_writer;

/* Blocking (files). Opens the writer for checkpoints of this name in this folder, of which `keep`
 * stay. Takes the lock of the name (lock.h) until the writer is closed or its process ends. Removes
 * files that earlier processes did not complete, and shows hidden checkpoints again if the
 * checkpoint that was to replace them was not written. With `keep` 0 it only takes the lock. NULL
 * with a reason, e.g. the name of another process that trains under this name. */
struct cmn_writer *cmn_writer_open(const char *folder, const char *name, int keep);

/* Blocks until the previous checkpoint is on the disk or has failed; then a thread writes this one.
 * The thread writes a temporary file, syncs it, renames it, and then removes the oldest
 * checkpoints; if it fails, all older checkpoints stay. The writer owns the snapshot from here on,
 * also if the call fails. 0, or -1 with a reason if the thread cannot be started. */
int cmn_writer_start(struct cmn_writer *w, struct cmn_snapshot *s, long iteration);

/* Sets a function that the thread calls before it renames a checkpoint, so that the logs are on the
 * disk before the checkpoint that relies on them. `of` is its argument and must outlive the writer.
 * Call it while nothing is being written. */
void cmn_writer_before_rename(struct cmn_writer *w, void (*call)(void *of), void *of);

/* Blocks until nothing is being written. */
void cmn_writer_wait(struct cmn_writer *w);

/* Returns the iteration of the latest checkpoint that has failed since the last call, or 0; `text`
 * becomes its file and the reason. *written (`written` may be NULL) becomes the iteration of the
 * latest checkpoint on the disk, or -1. Does not block. */
long cmn_writer_result(struct cmn_writer *w, char *text, size_t bytes, long *written);

/* Tells the writer that the training starts over: the next checkpoint replaces all others of this
 * name. The old ones stay until the new one is on the disk; a reader never finds old and new ones
 * together. Blocks until nothing is being written. */
void cmn_writer_supersede(struct cmn_writer *w);

/* Blocking (files). Removes what the writer of the checkpoint of this iteration was to remove, for a
 * training that has resumed from it and has written none: that writer may have been killed. Call it
 * while nothing is being written. */
void cmn_writer_prune(struct cmn_writer *w, long iteration);

/* Blocks until nothing is being written, releases the lock and frees the writer. NULL is
 * allowed. */
void cmn_writer_close(struct cmn_writer *w);

#endif
