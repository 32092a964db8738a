#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "terminal.h"

static int real_stderr = -1;

int cmn_output_open(int rank, const char *folder)
{
    static char open_now[4200];
    char name[4200];
    int fd;

    if (real_stderr < 0) {
        real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        /* Darknet prints its lines in pieces; another rank's last word must not land in one. */
        setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    }
    if (rank == 0) {
        return 0;
    }
    snprintf(name, sizeof name, "/dev/null");
    if (folder[0]) {
        snprintf(name, sizeof name, "%s/rank-%d.log", folder, rank);
    }
    if (!strcmp(name, open_now)) {
        return 0;
    }
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return cmn_fail("cmn_log: %s: %s", name, strerror(errno));
    }
    fflush(stdout);
    fflush(stderr);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        return cmn_fail("cmn_log: %s: %s", name, strerror(errno));
    }
    close(fd);
    memcpy(open_now, name, sizeof name);
    return 0;
}

/* A name that all processes of this job, and no others, have in common. */
static const char *job_name(void)
{
    static const char *const source[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                         "SLURM_JOB_ID", "PMI_JOBID"};

    for (size_t i = 0; i < sizeof source / sizeof source[0]; i++) {
        const char *value = getenv(source[i]);
        if (value && value[0]) {
            return value;
        }
    }
    return NULL;
}

/* An abstract socket address belongs to the first process that binds it, and is free again when
 * that process ends: a lock that leaves nothing behind. */
static int first_on_host(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *job = job_name();
    int fd, length;

    if (!job) {
        return 1;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 1;
    }
    length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "cmn-%u-%s-last-word",
                      (unsigned)getuid(), job);
    if (length > (int)sizeof address.sun_path - 2) {
        length = (int)sizeof address.sun_path - 2;
    }
    length += (int)offsetof(struct sockaddr_un, sun_path) + 1;
    return bind(fd, (struct sockaddr *)&address, (socklen_t)length) == 0 || errno != EADDRINUSE;
}

int cmn_output_last_word(const char *line, int node)
{
    /* Other nodes wait a moment: if the first one met the same error, the job ends meanwhile. */
    char text[2100];
    size_t length;

    if (node > 0) {
        sleep(CMN_OTHER_NODES_WAIT);
    }
    if (!first_on_host()) {
        return 0;
    }
    /* A progress bar may stand on the line. */
    snprintf(text, sizeof text, "%s%s", cmn_terminal_watched() ? "\r\033[K" : "", line);
    line = text;
    length = strlen(line);
    while (length > 0) {
        ssize_t written = write(real_stderr < 0 ? STDERR_FILENO : real_stderr, line, length);
        if (written <= 0) {
            break;
        }
        line += written;
        length -= (size_t)written;
    }
    return 1;
}
