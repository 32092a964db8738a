/* One TCP connection between two watchdogs. Local; nothing blocks. */
#ifndef CMN_WATCH_LINE_H
#define CMN_WATCH_LINE_H

#include <sys/socket.h>

#include "watchdog/message.h"

enum { CMN_LINE_OUT = 2 * CMN_MESSAGE_MOST };

struct cmn_connection {
    int fd, node; /* fd: -1 where there is none; node: -1 while it is a stranger's */
    int connecting;
    long age; /* milliseconds, while it is a stranger's or connecting */
    size_t got, left;
    unsigned char in[CMN_MESSAGE_MOST], out[CMN_LINE_OUT];
};

/* Takes the socket over. */
void cmn_connection_open(struct cmn_connection *l, int fd, int node);
void cmn_connection_close(struct cmn_connection *l);

/* Begins to connect with that node, or fails silently. */
void cmn_connection_connect(struct cmn_connection *l, const struct sockaddr_storage *to, int node);

/* `ms` later: still connecting, connected, or closed since that failed or took too long. */
void cmn_connection_complete(struct cmn_connection *l, long ms);

/* What does not fit is left out: signs of life come again. 0, or -1: the connection has ended, errno says why. */
int cmn_connection_send(struct cmn_connection *l, const unsigned char *token,
                        const struct cmn_message *w);

enum { CMN_LINE_ENDED = -1, CMN_LINE_STRANGE = -2 };

/* The next message. 1, 0 when there is none, CMN_LINE_ENDED (errno says why, 0: orderly), CMN_LINE_STRANGE: what came is
 * nothing that a watchdog of this job sends. */
int cmn_connection_next(struct cmn_connection *l, const unsigned char *token, uint32_t nodes,
                        int32_t ranks, struct cmn_message *w);

/* Milliseconds since the other host's kernel last took something, or -1: not known. */
long cmn_connection_quiet(const struct cmn_connection *l);

#endif
