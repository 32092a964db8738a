/* What watchdogs of different nodes send each other. Pure. What comes is taken for hostile until its token proves otherwise, and its
 * values are checked even then. Numbers are as processors have them: the nodes of a job are alike. */
#ifndef CMN_WATCH_WIRE_H
#define CMN_WATCH_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "watchdog/diagnosis.h"

enum cmn_message_kind {
    CMN_MESSAGE_BEAT =
        1,               /* a sign of life, with views of ranks that stand still; the others move */
    CMN_MESSAGE_MORE,    /* more of them */
    CMN_MESSAGE_BYE,     /* the node's part ends as it should */
    CMN_MESSAGE_VERDICT, /* the job is about to be ended */
};

enum { CMN_MESSAGE_TOKEN = 16, CMN_MESSAGE_VIEWS = 16, CMN_MESSAGE_HEAD = CMN_MESSAGE_TOKEN + 16 };

struct cmn_message_rank {
    int32_t rank, layer, bucket, state;
    int64_t still, silent, iteration, exchanges;
    int32_t waiting, ended;
    char phase[CMN_STATUS_TEXT], detail[CMN_STATUS_DETAIL];
};

enum { CMN_MESSAGE_MOST = CMN_MESSAGE_HEAD + CMN_MESSAGE_VIEWS * sizeof(struct cmn_message_rank) };

struct cmn_message {
    uint32_t kind, node, views;
    struct cmn_message_rank view[CMN_MESSAGE_VIEWS];
};

/* Writes a message to `to` (CMN_MESSAGE_MOST bytes); returns its length. */
size_t cmn_message_put(unsigned char *to, const unsigned char *token, const struct cmn_message *w);

/* Takes a message from the n bytes at `from`: its length, 0 when more is to come, -1 when this is none of ours: another
 * token, an unknown kind, a node, rank or state that does not exist. */
long cmn_message_take(const unsigned char *from, size_t n, const unsigned char *token,
                      uint32_t nodes, int32_t ranks, struct cmn_message *w);

void cmn_message_pack(const struct cmn_rank_status *from, struct cmn_message_rank *to);
/* Leaves the host as it is: it is known otherwise. */
void cmn_message_unpack(const struct cmn_message_rank *from, struct cmn_rank_status *to);

#endif
