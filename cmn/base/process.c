#include "base/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int cmn_process_read(pid_t pid, struct cmn_process *p)
{
    char file_name[64], text[1024], *end;
    FILE *file;
    size_t n;

    snprintf(file_name, sizeof file_name, "/proc/%d/stat", (int)pid);
    file = fopen(file_name, "re");
    if (!file) {
        return -1;
    }
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    /* The text is "PID (NAME) STATE PARENT …", and NAME may contain anything. */
    end = strrchr(text, ')');
    /* The state is field 3, the parent field 4, and the start time field 22. */
    if (!end || sscanf(end,
                       ") %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                       "%*s %llu",
                       &p->state, &p->parent, &p->began) != 3) {
        errno = ESRCH; /* The process has ended meanwhile. */
        return -1;
    }
    *end = '\0';
    snprintf(p->name, sizeof p->name, "%s", text + strcspn(text, "(") + 1);
    return 0;
}

int cmn_process_more_files(long *limit)
{
    struct rlimit files;
    rlim_t before;

    *limit = -1;
    if (getrlimit(RLIMIT_NOFILE, &files)) {
        return -1;
    }
    before = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    *limit = (long)files.rlim_max;
    return before < files.rlim_max ? setrlimit(RLIMIT_NOFILE, &files) : -1;
}
