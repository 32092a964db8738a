/* The writer of checkpoints: one at a time, on a thread of its own, while training continues.
 * Local. */
#ifndef CMN_CHECKPOINT_WRITER_H
#define CMN_CHECKPOINT_WRITER_H

#include <stddef.h>

#include "checkpoint/format.h"

struct cmn_writer;

/* Blocking (files). Of the checkpoints of this name in this folder `keep` stay. Removes what
 * earlier processes have not completed, and undoes what one of them began to supersede. NULL with
 * a reason: also when another process trains under this name there; the reason names it.
 * The lock is the file .NAME.checkpoint-lock, until the writer is closed, or its process ends. */
struct cmn_writer *cmn_writer_open(const char *folder, const char *name, int keep);

/* Takes the snapshot over, also when it fails. Blocks until the one before is on the disk. Then a
 * thread writes this one: under another name, synced, renamed, and then removes the oldest. The
 * others stay when it fails. 0, or -1 with the reason why there is no thread. */
int cmn_writer_start(struct cmn_writer *w, struct cmn_snapshot *s, long iteration);

/* Sets what the writer's thread calls before it gives a checkpoint its name, so that logs which the
 * checkpoint counts on are on the disk by then. `of` goes to the call, and must outlive the writer.
 * To be called while nothing is being written. */
void cmn_writer_before_rename(struct cmn_writer *w, void (*call)(void *of), void *of);

/* Blocks until nothing is being written. */
void cmn_writer_wait(struct cmn_writer *w);

/* What became of those begun since the last call. Returns the iteration of the latest that has
 * failed (text: its file, and why), or 0. *written, which may be NULL: the iteration of the latest
 * on the disk, or -1. Does not block. */
long cmn_writer_result(struct cmn_writer *w, char *text, size_t bytes, long *written);

/* The training starts over: the next checkpoint replaces all others of this name. They stay until
 * it is on the disk; from then on none of them is there, not even for a moment. Blocks as
 * cmn_writer_wait. */
void cmn_writer_supersede(struct cmn_writer *w);

/* Blocks until what was begun is written or has failed; frees the writer. NULL is allowed. */
void cmn_writer_close(struct cmn_writer *w);

#endif
