#include "base/job_stderr.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

static int kept = STDERR_FILENO;

static struct {
    int rank;
    char host[64];
} self = {.host = "this host"};

void cmn_job_stderr_open(void)
{
    int fd = kept == STDERR_FILENO ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1;

    if (fd >= 0) {
        kept = fd;
    }
}

void cmn_job_stderr_write(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(kept, text, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        /* The pipe is full, and somebody has made it non-blocking. */
        if (written < 0 && errno == EAGAIN) {
            struct pollfd to = {.fd = kept, .events = POLLOUT};
            if (poll(&to, 1, 1000) > 0) {
                continue;
            }
        }
        if (written <= 0) {
            break;
        }
        text += written;
        bytes -= (size_t)written;
    }
}

void cmn_job_event_identity(int rank, const char *host)
{
    self.rank = rank;
    snprintf(self.host, sizeof self.host, "%s", host);
}

/* Quotes a string for JSON. Drops what does not fit into `bytes`. */
static void quote(char *to, size_t bytes, const char *text)
{
    size_t n = 0;

    to[n++] = '"';
    for (; *text && n + 8 < bytes; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ') {
            n += (size_t)snprintf(to + n, bytes - n, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\') {
                to[n++] = '\\';
            }
            to[n++] = (char)c;
        }
    }
    to[n++] = '"';
    to[n] = '\0';
}

void cmn_job_event(const char *kind, long iteration, const char *text)
{
    const struct cmn_status *status = cmn_status_mine();
    const char *token = getenv("OMPI_CMN_EVENT_TOKEN");
    char phase[CMN_STATUS_TEXT], in[2 * sizeof phase], host[2 * sizeof self.host], said[2048];
    char line[sizeof in + sizeof host + sizeof said + 256];
    int n;

    if (!token) {
        return;
    }
    cmn_status_phase(status, phase);
    quote(in, sizeof in, phase);
    quote(host, sizeof host, self.host);
    quote(said, sizeof said, text);
    /* The line is shorter than PIPE_BUF and written by one write(), so that no other process's
     * output comes between. */
    n = snprintf(line, sizeof line,
                 "cmn-event:%.20s {\"kind\":\"%s\",\"rank\":%d,\"host\":%s,\"phase\":%s,"
                 "\"iteration\":%ld,\"text\":%s}\n",
                 token, kind, self.rank, host, in,
                 iteration < 0 ? atomic_load(&status->iteration) : iteration, said);
    cmn_job_stderr_write(line, (size_t)n);
}

void cmn_job_pulse(void)
{
    struct pollfd to = {.fd = kept, .events = POLLOUT};

    if (poll(&to, 1, 0) > 0 && to.revents & POLLOUT) {
        cmn_job_event("alive", -1, "");
    }
}
