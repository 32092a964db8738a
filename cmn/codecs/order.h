/* What codecs that hold pieces for a while share: pieces end in the order in which they were begun, and waiting for
 * them has an end. All local. */
#ifndef CMN_ORDER_H
#define CMN_ORDER_H

#include "codecs/codec.h"

struct cmn_order {
    const struct cmn_codec_plan *plan;
    int *piece; /* a ring of `room`, of which `under_way` from `first` on are used */
    int room, first, under_way;
    long ended; /* since open */
};

/* `plan` must outlive it. 0, or -1 with a reason. */
int cmn_order_open(struct cmn_order *o, const struct cmn_codec_plan *plan);
void cmn_order_close(struct cmn_order *o);

/* Piece i has been begun; it is not under way yet. */
void cmn_order_begin(struct cmn_order *o, int i);

/* The piece that was begun as number i of those under way. */
int cmn_order_at(const struct cmn_order *o, int i);

/* What the codec adds. */
struct cmn_order_calls {
    /* Moves the codec on and says whether the first piece has ended: 1, 0, or -1 with a reason. */
    int (*over)(void *codec, int piece);
    /* A number that changes whenever something has come or gone. */
    unsigned long long (*moved)(const void *codec);
    /* Notes what the first piece has waited for, so many seconds, and returns -1. */
    int (*late)(void *codec, int piece, long seconds);
};

/* For struct cmn_codec.progress. That nothing moves for cmn_timeout seconds of waiting is a failure. */
long cmn_order_progress(struct cmn_order *o, long until, void *codec,
                        const struct cmn_order_calls *calls);

#endif
