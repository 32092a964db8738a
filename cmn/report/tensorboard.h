/* The event file for TensorBoard (cmn_tensorboard): one record per row; the file holds only
 * complete records at every moment. Each training writes a file of its own; TensorBoard reads all
 * files of a folder as one run. Local. */
#ifndef CMN_TENSORBOARD_H
#define CMN_TENSORBOARD_H

#include "report/row.h"

struct cmn_tensorboard;

/* Makes the folder if it is missing, and a new file in it. TensorBoard then drops the rows of
 * earlier files after iteration `first`. NULL with a reason, also if the program was built without
 * protobuf-c. */
struct cmn_tensorboard *cmn_tensorboard_open(const char *folder, long first);

/* Appends a row. One that cannot be written is tried again once (report/backlog.h). */
void cmn_tensorboard_row(struct cmn_tensorboard *t, const struct cmn_row *row);

/* Blocks until all rows written so far are on the disk. Thread-safe. 0, or -1 with errno. */
int cmn_tensorboard_sync(const struct cmn_tensorboard *t);

/* Closes and frees it. 0, or -1 with a reason when rows are lost. NULL is allowed. */
int cmn_tensorboard_close(struct cmn_tensorboard *t);

#endif
