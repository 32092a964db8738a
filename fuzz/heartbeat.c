/* What a watchdog receives, as if each datagram had the MAC of who has the job's key. */
#include "fuzz.h"

#include "watchdog/heartbeat.c"

enum { NODES = 3, RANKS = 5 };

/* The first byte says which rank this is; then come a datagram's length, in two bytes, the datagram,
 * and the next one. */
void fuzz_heartbeat(const uint8_t *data, size_t size)
{
    static const int node[RANKS] = {0, 1, 1, 1, 2};
    static const struct sockaddr_storage from;
    struct peer peers[NODES] = {{.asks = -1}, {.asks = -1}, {.asks = -1}};
    struct rank ranks[RANKS] = {{.node = 0}};
    struct cmn_heartbeat h = {
        .ranks = RANKS, .nodes = NODES, .fd = -1, .peer = peers, .rank = ranks};
    struct cmn_rank_status seen[RANKS];
    char text[512];

    if (size == 0) {
        return;
    }
    for (int i = 0; i < RANKS; i++) {
        ranks[i].node = node[i];
        ranks[i].now.rank = i;
    }
    h.me = data[0] % RANKS;
    h.node = node[h.me];
    for (size_t at = 1; at + 2 <= size;) {
        size_t bytes = data[at] | (size_t)data[at + 1] << 8;
        struct datagram d;
        at += 2;
        bytes = bytes < size - at ? bytes : size - at;
        memcpy(&d, data + at, bytes < sizeof d ? bytes : sizeof d);
        at += bytes;
        if (take(&h, &d, bytes, &from)) {
            memset(seen, 0, sizeof seen);
            cmn_heartbeat_see(&h, seen);
            cmn_diagnose(seen, RANKS, 1000, text, sizeof text);
        }
    }
}
