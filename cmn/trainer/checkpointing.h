/* Extension: takes checkpoints. It decides when one is due, collects it in memory, and passes it to
 * the writer. */
#ifndef CMN_CHECKPOINTING_H
#define CMN_CHECKPOINTING_H

#include <stdio.h>

#include "trainer/checkpoint_contents.h"

/* The other calls take NULL for a training that has no checkpoints. */

/* Local. Returns whether checkpoints are taken. */
int cmn_checkpointing_takes(const struct cmn_checkpointing *c);

/* Local, blocking, on rank 0 where checkpoints are taken: returns when the last one is on the disk,
 * or could not be written, and prints which. */
void cmn_checkpointing_wait(struct cmn_checkpointing *c);

/* Local. Hashes the training list, whose stream is rewound. */
void cmn_checkpointing_list(struct cmn_checkpointing *c, FILE *list);

#endif
