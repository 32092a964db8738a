/* What a watchdog hears: from a stranger, or from whoever has the job's token. */
#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "watchdog/connection.h"
#include "watchdog/diagnosis.h"

enum { NODES = 3, RANKS = 5 };

/* As watch_nodes.c does: into what is known of a rank, which is then judged. */
static void believe(const struct cmn_message *w, struct cmn_rank_status *view)
{
    unsigned char again[CMN_MESSAGE_MOST];
    char text[512];

    for (uint32_t i = 0; i < w->views; i++) {
        cmn_message_unpack(&w->view[i], &view[w->view[i].rank]);
    }
    cmn_message_put(again, again, w);
    cmn_diagnose(view, RANKS, 1000, text, sizeof text);
}

void fuzz_heartbeat(const uint8_t *data, size_t size)
{
    static const unsigned char token[CMN_MESSAGE_TOKEN] = "0123456789abcde";
    static struct cmn_connection line;
    struct cmn_rank_status view[RANKS];
    struct cmn_message w;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        return;
    }
    memset(view, 0, sizeof view);
    for (int i = 0; i < RANKS; i++) {
        view[i].rank = i;
    }
    (void)!send(ends[1], data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(ends[1]);
    cmn_connection_open(&line, ends[0], -1);
    while (cmn_connection_next(&line, token, NODES, RANKS, &w) > 0) {
        believe(&w, view);
    }
    cmn_connection_close(&line);
}
