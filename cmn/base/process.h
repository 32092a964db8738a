/* process: what the kernel says about a process (/proc/PID/stat, proc(5)). Local, thread-safe. */
#ifndef CMN_PROCESS_H
#define CMN_PROCESS_H

#include <sys/types.h>

struct cmn_process {
    char name[32]; /* of its program, at most 15 bytes */
    char state;    /* 'R', 'S', 'D', 'T', 'Z' … */
    pid_t parent;
    unsigned long long began; /* clock ticks after boot */
};

/* Returns 0, or -1 with errno: ENOENT or ESRCH if there is no such process. */
int cmn_process_read(pid_t pid, struct cmn_process *p);

/* Raises this process's soft limit of open files to the hard one, after EMFILE. Sets *limit to the
 * number of files that it may open now. Returns 0, or -1 if the limit cannot be raised. */
int cmn_process_more_files(long *limit);

#endif
