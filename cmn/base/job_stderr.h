/* job_stderr: the standard error of the job, which people and cmn-run read. All local and
 * thread-safe.
 *
 * A rank reaches it here even if its own standard error goes to a file or nowhere. */
#ifndef CMN_JOB_STDERR_H
#define CMN_JOB_STDERR_H

#include <stddef.h>

/* Keeps a duplicate of the descriptor. Must be called before the standard error is redirected.
 * Later calls do nothing. */
void cmn_job_stderr_open(void);

/* Writes the whole text, in one write() if possible. Blocks while nobody reads, except on a
 * non-blocking descriptor: there the rest is dropped after a second. */
void cmn_job_stderr_write(const char *text, size_t bytes);

/* Sets the rank and host of later events. `host` is copied. */
void cmn_job_event_identity(int rank, const char *host);

/* Writes an event for cmn-run, if cmn-run started this job (OMPI_CMN_EVENT_TOKEN is set). An event
 * is one line `cmn-event:TOKEN {...}` with kind, rank, host, phase (what the rank was doing),
 * iteration and text; cmn-run removes it from the output that people see. `iteration` -1 stands for
 * the iteration in this rank's status. The kinds are:
 *
 *   start          The job has begun.
 *   training       The text says which training this is, and how far it has come. cmn-run passes it
 *                  to its next attempt (OMPI_CMN_REACHED, trainer/lineage.h).
 *   resume         The training resumes from the checkpoint of `iteration`; the text is its file.
 *   checkpoint     A checkpoint is on the disk; the text is like that of `training`.
 *   alive          Rank 0 runs. It is sent every few seconds (cmn_job_pulse).
 *   end            Rank 0 has written everything, and ends.
 *   stop           The ranks know that they are to stop.
 *   leave          This rank got SIGTERM: its machine is to be left.
 *   warning        The text is a line for people, which the journal keeps.
 *   locked         Another process holds the lock of the backup folder.
 *   start-timeout  MPI did not start in time.
 *   failure        A rank, a node or the connection to them failed.
 *   error          Anything else ends the job.
 */
void cmn_job_event(const char *kind, long iteration, const char *text);

/* Writes the event `alive`, unless it would have to wait for a reader. */
void cmn_job_pulse(void);

#endif
