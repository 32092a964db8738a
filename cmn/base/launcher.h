/* The launcher that has started this process (mpiexec, srun): what it says in the environment, and
 * the end of the job by way of it. MPI has no calls for that, so the names that differ between
 * launchers are in launcher.c, and nowhere else. All local. */
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

/* Whether it sends SIGCONT before SIGTERM, as Open MPI 5's does. */
int cmn_launcher_announces_end(void);

/* The lists of networks that Open MPI's TCP is to use and to leave out; NULL: not given. */
const char *cmn_launcher_networks(void);
const char *cmn_launcher_networks_excluded(void);

/* Before MPI starts: settings without which this library (MPI_Get_library_version) prints lines
 * about errors that are none, or does not say which rank has died. What the user has set stays. */
void cmn_launcher_prepare(const char *library);

/* Thread-safe. Ends all processes of the job, as MPI_Abort() does, but so that the launcher adds no
 * words of its own where it can be kept from that; works before MPI has started, too. Takes a second
 * or two. Returns where this launcher cannot be asked: the caller then ends the job by other
 * means. */
void cmn_launcher_end_job(int status);

/* Open MPI's own processes: mpiexec, or its daemon on another host. */
enum cmn_launcher_kind { CMN_NO_LAUNCHER, CMN_DAEMON, CMN_MPIEXEC };

/* The nearest one above this process: scripts may stand between. Its number goes to `pid`; 0 where
 * there is none. */
enum cmn_launcher_kind cmn_launcher_above(pid_t *pid);

/* Makes Open MPI 4's mpiexec end, and with it all that it has started on this host, where it is
 * above this process: after a cmn_launcher_end_job() it would wait for a host that does not answer,
 * which that of Open MPI 5 does not. Takes some 0.4 s, or 2.5 s where it has to be killed, and
 * returns at once. 0, or -1: it is not there. */
int cmn_launcher_end_mpiexec(void);

#endif
