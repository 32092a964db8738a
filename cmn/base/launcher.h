/* launcher: the program that started this process (mpiexec, srun). All local.
 *
 * These functions tell what the launcher says in the environment, and handle what Open MPI's own
 * processes (mpiexec, and a daemon on each other host) do about hosts that do not answer. MPI has
 * no calls for that. Names that differ between launchers are in launcher.c and nowhere else. */
#ifndef CMN_LAUNCHER_H
#define CMN_LAUNCHER_H

#include <sys/types.h>

/* Returns the number of processes that the launcher started; 1 without a launcher. */
int cmn_launcher_size(void);

/* Returns this process's rank; -1 unless a launcher started several processes. */
int cmn_launcher_rank(void);

/* Returns a name that only the processes of this job have in common; NULL without a launcher. */
const char *cmn_launcher_job(void);

/* Returns whether srun started this process itself, and not one of mpiexec's daemons above it. */
int cmn_launcher_is_srun(void);

/* Returns whether MPI can reach the launcher, by PMI or PMIx. */
int cmn_launcher_has_pmi(void);

/* Returns whether this process's standard output and error are pipes or terminals that mpiexec
 * made, and not the caller's own. */
int cmn_launcher_takes_output(void);

/* Return the lists of networks that Open MPI's TCP is to use, and to leave out; NULL if not
 * given. */
const char *cmn_launcher_networks(void);
const char *cmn_launcher_networks_excluded(void);

/* Sets environment variables without which this MPI library prints false error messages, or does
 * not say which rank died. `library` is the text of MPI_Get_library_version(). Variables that the
 * user has set stay. Must be called before MPI starts. */
void cmn_launcher_prepare(const char *library);

/* While MPI is up and before MPI_Abort(). Ends the job and this process where Open MPI 4's mpiexec
 * is above it; returns elsewhere. MPI_Abort() ends the connection to mpiexec and the process at the
 * same time, and a mpiexec that meets that while it ends itself crashes or never ends: 5 of 160
 * refusals. Here it hears of the connection first: 0 of 350. */
void cmn_launcher_abort(int status);

/* Open MPI's own processes: mpiexec, or its daemon on another host. */
enum cmn_launcher_kind { CMN_NO_LAUNCHER, CMN_DAEMON, CMN_MPIEXEC };

/* Returns the nearest of these processes above this one; scripts may stand between. Sets *pid to
 * its process id, or to 0 if there is none. */
enum cmn_launcher_kind cmn_launcher_above(pid_t *pid);

/* Ends Open MPI 4's mpiexec if it is above this process, and with it everything that it started on
 * this host. After MPI_Abort() it would wait for a host that does not answer; the mpiexec of Open
 * MPI 5 would not. Returns immediately; a child process needs about 0.4 s, or 2.5 s if it has to
 * kill mpiexec. Returns 0, or -1 if there is no such mpiexec or no child process. */
int cmn_launcher_end_mpiexec(void);

/* Returns the seconds, and a few more (at most 120), until mpiexec notices by its TCP keepalive
 * that a host does not answer; 0 if its keepalive is not set. No rank should end before that. Once
 * mpiexec has something to send to that host, it waits for an acknowledgement instead, for a
 * quarter of an hour, since unacknowledged data suspend the keepalive. */
long cmn_launcher_notices(void);

/* Asks Open MPI's daemon on this host, which started this process and which nobody else can reach,
 * to end. Does nothing if something else started this process. */
void cmn_launcher_end_daemon(void);

/* Returns whether mpiexec runs on another host, where nobody can end it, and will wait for a host
 * that does not answer until TCP gives up. Open MPI 4 does so without keepalive. */
int cmn_launcher_waits(void);

#endif
