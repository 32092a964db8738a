/* What became of a job: from what mpiexec and the ranks said, and how mpiexec ended. Pure, but for the lines that it is given. */
#ifndef CMN_RUN_VERDICT_H
#define CMN_RUN_VERDICT_H

enum { CMN_WHO = 300 };

/* What was said. */
struct cmn_host_info {
    int rank, signal;     /* mpiexec: this rank ended by this signal; 0: none did */
    char host[256];       /* there; or the host of the daemon that was lost */
    int daemon;           /* mpiexec has lost a machine, or could not reach one */
    int hung;             /* there was a fault, and mpiexec had to be ended */
    int stalled;          /* MPI did not come up: the network, or a process that hangs there */
    int no_program;       /* mpiexec: the program is not there */
    char word[CMN_WHO];   /* the first last word of a rank: "cmn[rank 1@b] …" */
    char resume[CMN_WHO]; /* the rest of the line that says from where the training goes on */
    long from;            /* its iteration, or -1 */
    int still;            /* a rank: what is left of another job holds the backup folder */
    int kept;             /* a checkpoint of this try is on the disk */
    int spoke;            /* a rank has said something: the job had begun */
    int heard;            /* the ranks know that they are to stop */
};

/* Empty. */
void cmn_host_info_clear(struct cmn_host_info *f);

/* Takes a line of the job's standard error. Returns whether it is one about checkpoints, for the journal. */
int cmn_host_info_line(struct cmn_host_info *f, const char *line);

enum cmn_end {
    CMN_DONE,    /* well */
    CMN_STOPPED, /* somebody asked for it */
    CMN_WRONG,   /* it would end that way again: input, disk, a missing program */
    CMN_LOST,    /* a rank or a machine: worth another try */
    CMN_CRASHED  /* the same, in a way that a program or its surroundings earn by themselves */
};

struct cmn_diagnosis {
    enum cmn_end end;
    int status;             /* 0 to 255: the job's own */
    char what[2 * CMN_WHO]; /* in words */
};

/* `status` is waitpid()'s of mpiexec, `stop` the signal that asked us to stop, or 0. `again`: it was not the first try. */
struct cmn_diagnosis cmn_verdict(const struct cmn_host_info *f, int status, int stop, int again);

#endif
