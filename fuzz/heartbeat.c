/* What a watchdog receives: from an unauthenticated peer, or from one that has the job's key. */
#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watchdog/connection.h"
#include "watchdog/diagnosis.h"

enum { NODES = 3, RANKS = 5 };

/* The first byte says which end this is. */
void fuzz_heartbeat(const uint8_t *data, size_t size)
{
    static const struct cmn_connection_job job = {"a key", NODES, RANKS, 1};
    static struct cmn_connection connection;
    struct cmn_rank_status seen[RANKS];
    struct cmn_message m;
    char text[512];
    int ends[2];

    if (size == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        return;
    }
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < RANKS; i++) {
        seen[i].rank = i;
    }
    (void)!send(ends[1], data + 1, size - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(ends[1], SHUT_WR);
    if (!cmn_connection_open(&connection, ends[0], data[0] & 1 ? CMN_LISTENER : CMN_CONNECTOR)) {
        while (cmn_connection_next(&connection, &job, &m) > 0) {
            seen[m.rank.rank] = m.rank;
            cmn_diagnose(seen, RANKS, 1000, text, sizeof text);
        }
        cmn_connection_close(&connection);
    }
    close(ends[1]);
}
