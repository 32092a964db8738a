/* The event file for TensorBoard (cmn_tensorboard): one record a row, whole at every moment. Each
 * training writes a file of its own; TensorBoard reads all files of a folder as one run. Local. */
#ifndef CMN_TENSORBOARD_H
#define CMN_TENSORBOARD_H

#include "report/row.h"

struct cmn_tensorboard;

/* Makes the folder where it is missing, and in it a new file. Rows of earlier files that are later
 * than iteration `first` count no more. NULL with a reason, also where the program was built
 * without protobuf-c. */
struct cmn_tensorboard *cmn_tensorboard_open(const char *folder, long first);

/* Appends a row. One that cannot be written is tried again once (report/backlog.h). */
void cmn_tensorboard_row(struct cmn_tensorboard *t, const struct cmn_row *row);

/* Blocks until the rows that are written are on the disk; thread-safe. 0, or -1 with errno. */
int cmn_tensorboard_sync(const struct cmn_tensorboard *t);

/* 0, or -1 with a reason when rows are lost. NULL is allowed. */
int cmn_tensorboard_close(struct cmn_tensorboard *t);

#endif
