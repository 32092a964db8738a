/* What the kernel says of a process (/proc/PID/stat, proc(5)). Local, thread-safe. */
#ifndef CMN_PROCESS_H
#define CMN_PROCESS_H

#include <sys/types.h>

struct cmn_process {
    char name[32]; /* of its program, 15 bytes at most */
    char state;    /* 'R', 'S', 'D', 'T', 'Z' … */
    pid_t parent;
    unsigned long long began; /* clock ticks after boot */
};

/* 0, or -1 with errno: ENOENT where there is no such process. */
int cmn_process_read(pid_t pid, struct cmn_process *p);

/* After EMFILE: raises this process's soft limit of open files to the hard one. 0, or -1 where that
 * is all already; *limit is what it may open now. */
int cmn_process_more_files(long *limit);

#endif
