/* What a watchdog receives: from an unauthenticated peer, or from one that has the job's token. */
#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watchdog/diagnosis.h"
#include "watchdog/heartbeat.h"

enum { NODES = 3, RANKS = 5 };

void fuzz_heartbeat(const uint8_t *data, size_t size)
{
    static const unsigned char token[CMN_TOKEN] = "0123456789abcde";
    static struct cmn_connection connection;
    struct cmn_rank_status seen[RANKS];
    struct cmn_message m;
    char text[512];
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        return;
    }
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < RANKS; i++) {
        seen[i].rank = i;
    }
    (void)!send(ends[1], data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(ends[1]);
    cmn_connection_open(&connection, ends[0], -1);
    while (cmn_connection_next(&connection, token, NODES, RANKS, &m) > 0) {
        seen[m.rank.rank] = m.rank;
        cmn_diagnose(seen, RANKS, 1000, text, sizeof text);
    }
    close(ends[0]);
}
