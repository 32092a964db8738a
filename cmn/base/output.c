#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/job_stderr.h"
#include "base/launcher.h"
#include "base/log.h"

static int own_rank, job_size;
/* Another rank of this host reports here that it has written a fatal message. */
static int own_socket = -1;

static int bind_to(const char *what, int number, int type);

/* Opens a rank's log and writes a first line, by which the next training recognises the file.
 * Appends: the output of an earlier attempt stays, and so does that of a running job while a second
 * one is started and refused. Returns the descriptor, or -1 with a reason. */
static int open_log(const char *name, int rank, int size)
{
    static const char first[] = "output of rank ", what[] = "cmn_rank_logs:";
    char found[sizeof first] = "";
    int fd = cmn_open_in_place(what, name, O_RDWR | O_CREAT | O_APPEND);
    ssize_t n = fd < 0 ? 0 : pread(fd, found, sizeof first - 1, 0);

    if (n > 0 && strcmp(found, first)) {
        close(fd);
        return cmn_fail("%s %s: what is there is no log of a rank, and would be lost: move it "
                        "away, or give another folder",
                        what, name);
    }
    if (fd >= 0 && dprintf(fd, "%s%d of %d\n", first, rank, size) < 0) {
        cmn_fail("%s %s: %s", what, name, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

void cmn_output_open(int rank, int size, const char *folder)
{
    static char open_now[4200];
    char name[4200];
    int fd, yes = 1;

    if (!job_size) {
        cmn_job_stderr_open();
        /* Darknet prints its lines in parts, and another rank's fatal message must not land inside
         * one. */
        setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
        own_rank = rank;
        job_size = size;
        own_socket = bind_to("rank", rank, SOCK_DGRAM);
        if (own_socket >= 0 && setsockopt(own_socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes)) {
            close(own_socket);
            own_socket = -1;
        }
    }
    if (rank == 0) {
        return;
    }
    snprintf(name, sizeof name, "/dev/null");
    if (folder[0]) {
        snprintf(name, sizeof name, "%s/rank-%d.log", folder, rank);
    }
    if (!strcmp(name, open_now)) {
        return;
    }
    fd = folder[0] ? open_log(name, rank, size) : open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && !folder[0]) {
        cmn_fatal("%s: %s", name, strerror(errno));
    }
    if (fd < 0) {
        cmn_fatal_reason();
    }
    fflush(stdout);
    fflush(stderr);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        cmn_fatal("cmn_rank_logs: %s: %s", name, strerror(errno));
    }
    close(fd);
    memcpy(open_now, name, sizeof name);
}

/* Fills an abstract address, which has no file, so nothing of it remains when the process ends. It
 * is made of the user, the job, `what` and `number`. Returns its length, or 0 without a
 * launcher. */
static socklen_t address_of(struct sockaddr_un *address, const char *what, int number)
{
    const char *job = cmn_launcher_job();
    int length;

    if (!job) {
        return 0;
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "cmn-%u-%s-%d-%s",
                      (unsigned)getuid(), what, number, job);
    if (length > (int)sizeof address->sun_path - 2) {
        length = (int)sizeof address->sun_path - 2;
    }
    return (socklen_t)length + (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1;
}

/* Returns a socket with that address, or -1 with errno. The address belongs to the first process
 * that binds it, and is free again when that process ends. */
static int bind_to(const char *what, int number, int type)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address, what, number);
    int fd = length ? socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;

    errno = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static int told; /* a fatal message has been written */

/* Returns whether a rank has reported a fatal message. Messages of other users do not count. */
static int was_told(void)
{
    union {
        char room[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } control;
    char byte;
    struct iovec where = {&byte, 1};

    while (!told) {
        struct msghdr message = {.msg_iov = &where,
                                 .msg_iovlen = 1,
                                 .msg_control = control.room,
                                 .msg_controllen = sizeof control.room};
        const struct cmsghdr *head;
        struct ucred sender;
        if (own_socket < 0 || recvmsg(own_socket, &message, 0) != 1) {
            return 0;
        }
        head = CMSG_FIRSTHDR(&message);
        if (!head || head->cmsg_type != SCM_CREDENTIALS) {
            continue;
        }
        memcpy(&sender, CMSG_DATA(head), sizeof sender);
        told = sender.uid == geteuid();
    }
    return 1;
}

/* Returns whether a process of this user has bound the address for fatal messages. Anybody may bind
 * any address, but SO_PEERCRED tells who listens there. */
static int ours_has_bound(void)
{
    const struct timespec while_waiting = {0, 10000000};
    struct sockaddr_un address;
    socklen_t length = address_of(&address, "fatal", 0), size = sizeof(struct ucred);
    struct ucred owner = {.uid = (uid_t)-1};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), known = 0;

    /* The owner needs a moment between binding and listening. If it ends meanwhile, it has told us
     * first. */
    for (int i = 0; i < 100 && fd >= 0 && !known && !was_told(); i++) {
        known = !connect(fd, (struct sockaddr *)&address, length) || errno == EAGAIN;
        if (!known) {
            nanosleep(&while_waiting, NULL);
        }
    }
    known =
        known && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) && owner.uid == geteuid();
    if (fd >= 0) {
        close(fd);
    }
    return known;
}

static int first_on_host(void)
{
    int fd = bind_to("fatal", 0, SOCK_STREAM);

    if (fd >= 0) {
        listen(fd, SOMAXCONN);
        return 1;
    }
    return errno != EADDRINUSE || !ours_has_bound();
}

/* Tells the other ranks of this host that this process has written a fatal message. The address for
 * fatal messages is free again when its owner ends, so a rank that notices only that end must have
 * been told before. Returns how many ranks could not be told; -1 before the size of the job is
 * known. */
static int tell_others(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    int left = job_size - 1;

    for (int i = 0; i < job_size && fd >= 0; i++) {
        socklen_t length = address_of(&address, "rank", i);
        if (i != own_rank && length) {
            ssize_t sent = sendto(fd, "", 1, 0, (struct sockaddr *)&address, length);
            /* EAGAIN: its queue is full of such messages. */
            left -= sent == 1 || errno == EAGAIN;
        }
    }
    close(fd);
    return left;
}

void cmn_output_flush(void)
{
    struct pollfd to = {.fd = STDOUT_FILENO, .events = POLLOUT};

    if (!ftrylockfile(stdout)) {
        if (poll(&to, 1, 0) > 0 && to.revents & POLLOUT) {
            fflush(stdout);
        }
        funlockfile(stdout);
    }
}

int cmn_output_watched(void)
{
    char path[64];
    int fd, watched;

    if (!cmn_launcher_takes_output()) {
        return isatty(STDOUT_FILENO);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)getppid());
    fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* A daemon started it: mpiexec is on another host. */
    }
    watched = isatty(fd);
    close(fd);
    return watched;
}

int cmn_output_fatal(const char *line, int node)
{
    char text[2100];

    /* If the first node meets the same error, it ends the job meanwhile. */
    if (node > 0) {
        sleep(CMN_OTHER_NODES_WAIT);
    }
    /* The first rank may print its message and end between was_told() and first_on_host(). It tells
     * us before it ends, so was_told() is asked again. */
    if (was_told() || !first_on_host() || was_told()) {
        return 0;
    }
    /* Clears the line, on which a progress bar may stand. */
    snprintf(text, sizeof text, "%s%s", cmn_output_watched() ? "\r\033[K" : "", line);
    cmn_job_stderr_write(text, strlen(text));
    tell_others();
    told = 1;
    return 1;
}

void cmn_output_await_others(void)
{
    enum { STEP_MS = 10 };

    for (int ms = 0; ms < 1000 * CMN_FATAL_WAIT && tell_others(); ms += STEP_MS) {
        struct timespec left = {0, STEP_MS * 1000000};
        while (nanosleep(&left, &left) && errno == EINTR) {
        }
    }
}
