#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int journal = -1; /* a socket to the process that writes the file */
static const char *journal_name;

enum { LAST_LINES_MS = 2000 };

/* ---- the standard error ---- */

/* In bytes: WAITING is the most that waits for a reader, NOTE is for a line about what was left
 * out, and AT_ONCE is what a pipe surely takes if it takes any. */
enum { WAITING = 1 << 20, NOTE = 128, AT_ONCE = 512 };

static struct {
    char text[WAITING + NOTE];
    size_t used, left_out;
} out;

void cmn_run_stderr_write(const char *text, size_t bytes)
{
    size_t room = out.left_out || out.used >= WAITING ? 0 : WAITING - out.used;
    size_t n = bytes < room ? bytes : room;

    memcpy(out.text + out.used, text, n);
    out.used += n;
    out.left_out += bytes - n;
}

/* A thread could wait for the reader, but the child of a process with several threads gets the
 * signal of its parent's death several times. */
int cmn_run_stderr_written(void *unused)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t done = 0;

    (void)unused;
    while (done < out.used && poll(&to, 1, 0) > 0) {
        size_t left = out.used - done;
        ssize_t n = write(STDERR_FILENO, out.text + done, left < AT_ONCE ? left : AT_ONCE);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            done = out.used; /* nobody can read it; the journal is still written */
        }
        done += n > 0 ? (size_t)n : 0;
    }
    out.used -= done;
    memmove(out.text, out.text + done, out.used);
    if (out.left_out && out.used < WAITING) {
        out.used += (size_t)snprintf(out.text + out.used, NOTE,
                                     "\ncmn-run: %zu bytes were left out, as nobody read them\n",
                                     out.left_out);
        out.left_out = 0;
    }
    return !out.used;
}

/* ---- the journal ---- */

/* Returns why this file cannot be the journal, or NULL. A mistyped name must not spoil another
 * file, and a pipe that nobody reads would stop the run; a terminal that is stopped does not,
 * because the file is opened with O_NONBLOCK. */
static const char *why_no_journal(int fd)
{
    char line[128];
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st)) {
        return strerror(errno);
    }
    if (S_ISFIFO(st.st_mode)) {
        return "this is a pipe, which may block";
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        return NULL;
    }
    n = pread(fd, line, sizeof line - 1, 0);
    line[n < 0 ? 0 : n] = '\0';
    return strstr(line, "Z cmn-run[") ? NULL : "this file holds something else";
}

/* Copies lines to the file until their end. If the disk no longer answers, this process hangs, and
 * cmn-run does not. */
static _Noreturn void copy_lines(int from, int file)
{
    char text[4096];
    ssize_t n;

    while ((n = read(from, text, sizeof text)) > 0) {
        if (write(file, text, (size_t)n) != n) {
            cmn_run_fail("journal %s: %s: the run continues without it", journal_name,
                         strerror(errno));
            cmn_run_stderr_written(NULL);
            break;
        }
    }
    _exit(0);
}

/* Starts a process in a session of its own, which is no child of cmn-run: only a job's processes
 * are its children. Returns 0, or -1 with errno. */
static int start_writer(int file)
{
    int ends[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || (pid = fork()) < 0) {
        return -1;
    }
    if (!pid) {
        close(ends[1]);
        if (fork()) {
            _exit(0);
        }
        setsid();
        copy_lines(ends[0], file);
    }
    waitpid(pid, NULL, 0);
    close(ends[0]);
    journal = ends[1];
    return 0;
}

/* Leaves the writer a moment for the last lines. */
static void await_writer(void)
{
    struct pollfd to = {.fd = journal, .events = POLLIN};

    if (!shutdown(journal, SHUT_WR)) {
        poll(&to, 1, LAST_LINES_MS);
    }
}

void cmn_journal_open(const char *file, int asked_for)
{
    const char *why = NULL;
    int fd;

    journal_name = file;
    fd = open(file, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0) {
        why = strerror(errno);
    } else {
        why = why_no_journal(fd);
        if (!why && start_writer(fd)) {
            why = strerror(errno);
        }
        close(fd);
    }
    if (why && asked_for) {
        cmn_run_fatal("journal %s: %s: name another one with -journal", file, why);
    }
    if (why) {
        cmn_run_fail("no journal is kept: %s: %s (-journal FILE names another one)", file, why);
    } else {
        atexit(await_writer);
    }
}

static void write_line(const char *event, const char *text)
{
    char *line, when[32];
    struct timespec now;
    struct tm parts;
    int n;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    n = asprintf(&line, "%s.%03ldZ cmn-run[%d] %-7s %s", when, now.tv_nsec / 1000000, (int)getpid(),
                 event, text);
    if (n < 0) {
        cmn_run_fatal("out of memory");
    }
    for (char *c = line; *c; c++) {
        *c = *c == '\n' || *c == '\r' ? ' ' : *c;
    }
    line[n] = '\n';
    if (send(journal, line, (size_t)n + 1, MSG_DONTWAIT | MSG_NOSIGNAL) != n + 1) {
        if (errno != EPIPE) { /* else the writer has said why */
            cmn_run_fail("journal %s: the disk does not answer: the run continues without it",
                         journal_name);
        }
        close(journal);
        journal = -1;
    }
    free(line);
}

/* ---- lines ---- */

/* Writes the line to the journal, unless `event` is NULL, and to the standard error if `say`. */
static void tell(const char *event, int say, const char *format, va_list args)
{
    char *text, *line;

    if (vasprintf(&text, format, args) < 0 || asprintf(&line, "cmn-run: %s\n", text) < 0) {
        fputs("cmn-run: out of memory\n", stderr);
        exit(1);
    }
    if (say) {
        cmn_run_stderr_write(line, strlen(line));
    }
    if (event && journal >= 0) {
        write_line(event, text);
    }
    free(line);
    free(text);
}

void cmn_run_fatal(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(NULL, 1, format, args);
    va_end(args);
    exit(1);
}

void cmn_run_printed(void)
{
    if (fflush(stdout) || ferror(stdout)) {
        cmn_run_fatal("the output cannot be written: %s", strerror(errno));
    }
    exit(0);
}

int cmn_run_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(NULL, 1, format, args);
    va_end(args);
    return -1;
}

void cmn_journal(const char *event, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(event, 0, format, args);
    va_end(args);
}

void cmn_journal_say(const char *event, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tell(event, 1, format, args);
    va_end(args);
}

void *cmn_run_realloc(void *p, size_t n, size_t size)
{
    void *more = reallocarray(p, n, size);

    if (!more) {
        cmn_run_fatal("out of memory: %zu items of %zu bytes", n, size);
    }
    return more;
}
