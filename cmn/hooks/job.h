/* The job of this process: its start, its end, and its session. */
#ifndef CMN_JOB_H
#define CMN_JOB_H

#include "trainer/session.h"

/* `on` is 0 unless this process takes part in a job. */
extern struct cmn_session cmn_job;

/* Local. Exit handlers run last in, first out. After this call the job's own handler runs before
 * those that libraries have registered so far. CUDA's handler ends CUDA, and the communicator must
 * be closed before that. */
void cmn_end_job_before_libraries(void);

/* Local, the same on all ranks. Sets the options by the keys of cmn in the cfg that Darknet has
 * read. */
void cmn_read_cfg_keys(void);

/* Local, thread-safe. Ends the job if one of the n boxes of a label file has a class that the cfg
 * does not have, or from which its map= does not lead on. Warns once of more boxes than max=. */
struct cmn_label;
void cmn_check_labels(const char *file, const struct cmn_label *label, int n);

#endif
