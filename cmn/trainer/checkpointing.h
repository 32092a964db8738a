/* When checkpoints of a training are taken, and from what. */
#ifndef CMN_CHECKPOINTING_H
#define CMN_CHECKPOINTING_H

#include <stdio.h>

#include "trainer/checkpoint_contents.h"

/* In all of them c may be NULL: then no checkpoints are taken. */

/* Local. Whether checkpoints are taken, and whether one is due after this iteration. */
int cmn_checkpointing_takes(const struct cmn_checkpointing *c);
int cmn_checkpointing_due(const struct cmn_checkpointing *c);

/* Local. The training list is read: its stream, which is rewound. */
void cmn_checkpointing_list(struct cmn_checkpointing *c, FILE *list);

/* Collective, blocking. Keeps what the training is now; `row_made`: this iteration's row counts as
 * written. */
void cmn_checkpointing_collect(struct cmn_checkpointing *c, int row_made);

/* Local; blocks until the checkpoint before is on the disk. What was collected, if it was, goes to
 * the thread that writes; says what became of earlier ones. */
void cmn_checkpointing_write(struct cmn_checkpointing *c);

/* Local, blocking. Waits for what is being written, and frees c. */
void cmn_checkpointing_close(struct cmn_checkpointing *c);

#endif
