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

/* Appends a row. 0, or -1 with a reason. */
int cmn_tensorboard_row(struct cmn_tensorboard *t, const struct cmn_row *row);

/* NULL is allowed. */
void cmn_tensorboard_close(struct cmn_tensorboard *t);

#endif
