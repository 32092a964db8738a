/* What watchdogs of different nodes send each other. Pure. What comes is taken for hostile until its token proves otherwise, and its
 * values are checked even then. Numbers are as processors have them: the nodes of a job are alike. */
#ifndef CMN_WATCH_WIRE_H
#define CMN_WATCH_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "watch_verdict.h"

enum cmn_wire_kind {
    CMN_WIRE_BEAT = 1, /* a sign of life, with views of ranks that stand still; the others move */
    CMN_WIRE_MORE,     /* more of them */
    CMN_WIRE_BYE,      /* the node's part ends as it should */
    CMN_WIRE_VERDICT,  /* the job is about to be ended */
};

enum { CMN_WIRE_TOKEN = 16, CMN_WIRE_VIEWS = 16, CMN_WIRE_HEAD = CMN_WIRE_TOKEN + 16 };

struct cmn_wire_rank {
    int32_t rank, layer, bucket, state;
    int64_t still, silent, iteration, exchanges;
    int32_t waiting, ended;
    char phase[CMN_WATCH_TEXT], detail[CMN_WATCH_DETAIL];
};

enum { CMN_WIRE_MOST = CMN_WIRE_HEAD + CMN_WIRE_VIEWS * sizeof(struct cmn_wire_rank) };

struct cmn_wire {
    uint32_t kind, node, views;
    struct cmn_wire_rank view[CMN_WIRE_VIEWS];
};

/* Writes a message to `to` (CMN_WIRE_MOST bytes); returns its length. */
size_t cmn_wire_put(unsigned char *to, const unsigned char *token, const struct cmn_wire *w);

/* Takes a message from the n bytes at `from`: its length, 0 when more is to come, -1 when this is none of ours: another
 * token, an unknown kind, a node, rank or state that does not exist. */
long cmn_wire_take(const unsigned char *from, size_t n, const unsigned char *token, uint32_t nodes,
                   int32_t ranks, struct cmn_wire *w);

void cmn_wire_pack(const struct cmn_watch_view *from, struct cmn_wire_rank *to);
/* Leaves the host as it is: it is known otherwise. */
void cmn_wire_unpack(const struct cmn_wire_rank *from, struct cmn_watch_view *to);

#endif
