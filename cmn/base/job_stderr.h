/* The standard error of the job, which people and cmn-run read. A rank reaches it here also when
 * its own standard error goes to a file or nowhere. All local and thread-safe. */
#ifndef CMN_JOB_STDERR_H
#define CMN_JOB_STDERR_H

#include <stddef.h>

/* Keeps the descriptor. Called before the standard error is redirected; later calls do nothing. */
void cmn_job_stderr_open(void);

/* Writes all of it at once. Where nobody takes it for a second, the rest is dropped. */
void cmn_job_stderr_write(const char *text, size_t bytes);

/* Names this process in later events. `host` is copied. */
void cmn_job_event_identity(int rank, const char *host);

/* Writes an event for cmn-run, where it has started this job (OMPI_CMN_EVENT_TOKEN): a line with
 * kind, rank, host, phase, iteration and text, which cmn-run takes out of what people see.
 * `iteration` -1: as in this rank's status. Kinds:
 *
 *   start          the job has begun
 *   training       which training this is, and how far it has come: cmn-run hands the text to its next attempt
 *                  (OMPI_CMN_REACHED, trainer/lineage.h)
 *   resume         from the checkpoint of that iteration; the text is its file
 *   checkpoint     one is on the disk; the text is as that of `training`
 *   alive          rank 0 runs, every few seconds (cmn_job_pulse)
 *   end            rank 0 has written all, and ends
 *   stop           the ranks know that they are to stop
 *   warning        a line for people that the journal keeps
 *   locked         another process holds the backup folder
 *   start-timeout  MPI did not come up
 *   failure        a rank, a node or the way to them failed
 *   error          all else that ends a job
 */
void cmn_job_event(const char *kind, long iteration, const char *text);

/* The event `alive`, unless it had to wait for a reader. */
void cmn_job_pulse(void);

#endif
