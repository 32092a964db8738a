#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/terminal.h"

int cmn_terminal_watched(void)
{
    char path[64];
    int fd, watched;

    if (!getenv("OMPI_COMM_WORLD_SIZE")) {
        return isatty(STDOUT_FILENO);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)getppid());
    fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* started by a daemon of another host */
    }
    watched = isatty(fd);
    close(fd);
    return watched;
}
