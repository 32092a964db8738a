#include "mpi/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"

int cmn_shared_file_offer(struct cmn_shared_file *f, int fd, off_t at)
{
    if (getrandom(&f->token, sizeof f->token, 0) != sizeof f->token) {
        f->token = (uint64_t)getpid() * 2654435761U;
    }
    if (pwrite(fd, &f->token, sizeof f->token, at) != sizeof f->token) {
        return -1;
    }
    f->process = getpid();
    f->file = fd;
    return 0;
}

int cmn_shared_file_join(const struct cmn_shared_file *f, off_t at)
{
    static const char apart[] = " (ranks of one host in different containers cannot share memory: "
                                "use cmn_communicator=flat)";
    uint64_t found = ~f->token;
    char name[64];
    int fd;

    snprintf(name, sizeof name, "/proc/%ld/fd/%ld", f->process, f->file);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return cmn_fail("%s: %s%s", name, strerror(errno), apart);
    }
    if (pread(fd, &found, sizeof found, at) != sizeof found || found != f->token) {
        close(fd);
        return cmn_fail("%s is not rank 0's%s", name, apart);
    }
    return fd;
}
