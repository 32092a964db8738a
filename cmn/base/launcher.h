/* The launcher that has started this process (mpiexec, srun): what it says in the environment, and
 * what Open MPI's own processes (mpiexec, and a daemon on each other host) do about hosts that do
 * not answer. MPI has no calls for that, so the names that differ between launchers are in
 * launcher.c, and nowhere else. All local. */
#ifndef CMN_LAUNCHER_H
#define CMN_LAUNCHER_H

#include <sys/types.h>

/* Number of processes that it started; 1 without a launcher. */
int cmn_launcher_size(void);

/* This process's rank; -1 when no launcher started several processes. */
int cmn_launcher_rank(void);

/* A name that only the processes of this job have in common; NULL without a launcher. */
const char *cmn_launcher_job(void);

/* Whether srun has started this process itself, and not one of mpiexec's daemons above it. */
int cmn_launcher_is_srun(void);

/* Whether there is a way from MPI to the launcher: PMI or PMIx. */
int cmn_launcher_has_pmi(void);

/* Whether this process's standard output and error are pipes or terminals that mpiexec has made,
 * and not the caller's own. */
int cmn_launcher_takes_output(void);

/* The lists of networks that Open MPI's TCP is to use and to leave out; NULL: not given. */
const char *cmn_launcher_networks(void);
const char *cmn_launcher_networks_excluded(void);

/* Before MPI starts: settings without which this library (MPI_Get_library_version) prints lines
 * about errors that are none, or does not say which rank has died. What the user has set stays. */
void cmn_launcher_prepare(const char *library);

/* Open MPI's own processes: mpiexec, or its daemon on another host. */
enum cmn_launcher_kind { CMN_NO_LAUNCHER, CMN_DAEMON, CMN_MPIEXEC };

/* The nearest one above this process: scripts may stand between. Its number goes to `pid`; 0 where
 * there is none. */
enum cmn_launcher_kind cmn_launcher_above(pid_t *pid);

/* Makes Open MPI 4's mpiexec end, and with it all that it has started on this host, where it is
 * above this process: after MPI_Abort() it would wait for a host that does not answer,
 * which that of Open MPI 5 does not. Takes some 0.4 s, or 2.5 s where it has to be killed, and
 * returns at once. 0, or -1: it is not there. */
int cmn_launcher_end_mpiexec(void);

/* Seconds, and a few more, until mpiexec notices by its TCP keepalive that a host does not answer;
 * 0: its keepalive is not set. No rank should end before that: once mpiexec has something to send
 * to that host it waits for an acknowledgement instead, for a quarter of an hour, since
 * unacknowledged data suspend the keepalive. */
long cmn_launcher_notices(void);

/* Asks Open MPI's daemon of this host, which started this process and which nobody else can reach,
 * to end. Does nothing where something else started it. */
void cmn_launcher_end_daemon(void);

/* Whether mpiexec is on another host, where nobody can make it end, and will wait for a host that
 * does not answer until TCP gives up: that of Open MPI 4, without keepalive. */
int cmn_launcher_waits(void);

#endif
