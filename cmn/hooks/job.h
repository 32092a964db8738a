/* The job of this process: its start, its end, and what the module knows of it. */
#ifndef CMN_JOB_H
#define CMN_JOB_H

#include "trainer/session.h"

/* `on` is 0 unless this process takes part in a job. */
extern struct cmn_session cmn_job;

/* Local. `close` is called once, when the job ends well: before the communicators and MPI end, and
 * before what was registered earlier. At most CMN_AT_JOB_END of them. */
enum { CMN_AT_JOB_END = 4 };
void cmn_at_job_end(void (*close)(void));

/* Local. Exit handlers run last in, first out: from here on the job's own comes before those that
 * libraries have registered by now. CUDA's ends CUDA, and the communicator must be closed before
 * that. */
void cmn_end_job_before_libraries(void);

/* Local. Ends the job where ranks are to divide images that Darknet's own loop evaluates, and the
 * network has recurrent layers. */
struct network;
void cmn_require_divisible(const struct network *net);

#endif
