/* Extension: takes checkpoints. It decides when one is due, collects it in memory, and passes it to
 * the writer. */
#ifndef CMN_CHECKPOINTING_H
#define CMN_CHECKPOINTING_H

#include <stdio.h>

#include "trainer/checkpoint_contents.h"

/* Both calls take NULL for a training that has no checkpoints. */

/* Local. Returns whether checkpoints are taken. */
int cmn_checkpointing_takes(const struct cmn_checkpointing *c);

/* Local. Hashes the training list, whose stream is rewound. */
void cmn_checkpointing_list(struct cmn_checkpointing *c, FILE *list);

#endif
