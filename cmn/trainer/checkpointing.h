/* Takes checkpoints: decides when one is due, collects it in memory, and passes it to the
 * writer. */
#ifndef CMN_CHECKPOINTING_H
#define CMN_CHECKPOINTING_H

#include <stdio.h>

#include "trainer/checkpoint_contents.h"

/* In all calls c may be NULL: then no checkpoints are taken. */

/* Local. Return whether checkpoints are taken, and whether one is due after this iteration. */
int cmn_checkpointing_takes(const struct cmn_checkpointing *c);
int cmn_checkpointing_due(const struct cmn_checkpointing *c);

/* Local. Hashes the training list, whose stream is rewound. */
void cmn_checkpointing_list(struct cmn_checkpointing *c, FILE *list);

/* Collective, blocking. Copies the training's state to memory. `row_made`: this iteration's row of
 * the report counts as written. */
void cmn_checkpointing_collect(struct cmn_checkpointing *c, int row_made);

/* Local; blocks until the previous checkpoint is on the disk. Passes the collected checkpoint, if
 * there is one, to the writer's thread, and prints what became of earlier ones. */
void cmn_checkpointing_write(struct cmn_checkpointing *c);

/* Local, blocking. Waits for the writer and frees c. Returns whether the training's last checkpoint
 * could not be written; a line has said so. */
int cmn_checkpointing_close(struct cmn_checkpointing *c);

#endif
