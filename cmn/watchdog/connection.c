#include "watchdog/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "watchdog/address.h"

/* Milliseconds until a connection must be there. */
enum { CONNECTING = 3000 };

void cmn_connection_open(struct cmn_connection *l, int fd, int node)
{
    int yes = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    l->fd = fd;
    l->node = node;
    l->age = 0;
    l->got = l->left = 0;
    l->connecting = 0;
}

void cmn_connection_close(struct cmn_connection *l)
{
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
}

void cmn_connection_connect(struct cmn_connection *l, const struct sockaddr_storage *to, int node)
{
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)to, cmn_address_bytes(to)) && errno != EINPROGRESS) {
        close(fd);
        return;
    }
    cmn_connection_open(l, fd, node);
    l->connecting = 1;
}

void cmn_connection_complete(struct cmn_connection *l, long ms)
{
    struct pollfd p = {.fd = l->fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0;

    if (l->fd < 0 || !l->connecting) {
        return;
    }
    l->age += ms;
    if (poll(&p, 1, 0) > 0) {
        l->connecting = 0;
        if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) || error) {
            cmn_connection_close(l);
        }
    } else if (l->age > CONNECTING) {
        cmn_connection_close(l);
    }
}

int cmn_connection_send(struct cmn_connection *l, const unsigned char *token,
                        const struct cmn_message *w)
{
    unsigned char bytes[CMN_MESSAGE_MOST];
    size_t count = cmn_message_put(bytes, token, w);
    ssize_t sent;

    if (l->fd < 0 || l->connecting) {
        return 0;
    }
    if (count <= CMN_LINE_OUT - l->left) {
        memcpy(l->out + l->left, bytes, count);
        l->left += count;
    }
    sent = send(l->fd, l->out, l->left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    l->left -= (size_t)sent;
    memmove(l->out, l->out + sent, l->left);
    return 0;
}

int cmn_connection_next(struct cmn_connection *l, const unsigned char *token, uint32_t nodes,
                        int32_t ranks, struct cmn_message *w)
{
    for (;;) {
        ssize_t got;
        long bytes = cmn_message_take(l->in, l->got, token, nodes, ranks, w);
        if (bytes < 0) {
            return CMN_LINE_STRANGE;
        }
        if (bytes > 0) {
            l->got -= (size_t)bytes;
            memmove(l->in, l->in + bytes, l->got);
            return 1;
        }
        got = recv(l->fd, l->in + l->got, sizeof l->in - l->got, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return CMN_LINE_ENDED;
        }
        l->got += (size_t)got;
    }
}

long cmn_connection_quiet(const struct cmn_connection *l)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;

    if (l->fd < 0 || l->connecting || getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes)) {
        return -1;
    }
    return (long)info.tcpi_last_ack_recv;
}
