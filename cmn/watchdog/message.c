#include "watchdog/message.h"

#include <string.h>

size_t cmn_message_put(unsigned char *to, const unsigned char *token, const struct cmn_message *w)
{
    const uint32_t head[4] = {w->kind, w->node, w->views, 0};
    size_t bytes = w->views * sizeof w->view[0];

    memcpy(to, token, CMN_MESSAGE_TOKEN);
    memcpy(to + CMN_MESSAGE_TOKEN, head, sizeof head);
    memcpy(to + CMN_MESSAGE_HEAD, w->view, bytes);
    return CMN_MESSAGE_HEAD + bytes;
}

/* How long it takes does not tell how much of it is right. */
static int same_token(const unsigned char *a, const unsigned char *b)
{
    unsigned char differs = 0;

    for (int i = 0; i < CMN_MESSAGE_TOKEN; i++) {
        differs |= a[i] ^ b[i];
    }
    return !differs;
}

/* What is printed must not talk to the terminal. */
static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 127) {
            *text = '?';
        }
    }
}

static int take_view(struct cmn_message_rank *v, int32_t ranks)
{
    if (v->rank < 0 || v->rank >= ranks || v->state < 0 || v->state >= CMN_RANK_STATES ||
        v->still < 0 || v->silent < 0) {
        return -1;
    }
    make_printable(v->phase, sizeof v->phase);
    make_printable(v->detail, sizeof v->detail);
    return 0;
}

long cmn_message_take(const unsigned char *from, size_t n, const unsigned char *token,
                      uint32_t nodes, int32_t ranks, struct cmn_message *w)
{
    uint32_t head[4];
    size_t bytes;

    if (n < CMN_MESSAGE_HEAD) {
        return 0;
    }
    memcpy(head, from + CMN_MESSAGE_TOKEN, sizeof head);
    if (!same_token(from, token) || head[0] < CMN_MESSAGE_BEAT || head[0] > CMN_MESSAGE_VERDICT ||
        head[1] >= nodes || head[2] > CMN_MESSAGE_VIEWS || head[3]) {
        return -1;
    }
    bytes = CMN_MESSAGE_HEAD + head[2] * sizeof w->view[0];
    if (n < bytes) {
        return 0;
    }
    w->kind = head[0];
    w->node = head[1];
    w->views = head[2];
    memcpy(w->view, from + CMN_MESSAGE_HEAD, bytes - CMN_MESSAGE_HEAD);
    for (uint32_t i = 0; i < w->views; i++) {
        if (take_view(&w->view[i], ranks)) {
            return -1;
        }
    }
    return (long)bytes;
}

void cmn_message_pack(const struct cmn_rank_status *from, struct cmn_message_rank *to)
{
    *to = (struct cmn_message_rank){
        .rank = from->rank,
        .layer = from->layer,
        .bucket = from->bucket,
        .state = (int32_t)from->state,
        .still = from->still,
        .silent = from->silent,
        .iteration = from->iteration,
        .exchanges = from->exchanges,
        .waiting = from->waiting,
        .ended = from->ended,
    };
    memcpy(to->phase, from->phase, sizeof to->phase);
    memcpy(to->detail, from->detail, sizeof to->detail);
}

void cmn_message_unpack(const struct cmn_message_rank *from, struct cmn_rank_status *to)
{
    to->rank = from->rank;
    to->layer = from->layer;
    to->bucket = from->bucket;
    to->state = (enum cmn_rank_state)from->state;
    to->still = (long)from->still;
    to->silent = (long)from->silent;
    to->iteration = (long)from->iteration;
    to->exchanges = (long)from->exchanges;
    to->waiting = from->waiting != 0;
    to->ended = from->ended != 0;
    memcpy(to->phase, from->phase, sizeof to->phase);
    memcpy(to->detail, from->detail, sizeof to->detail);
}
