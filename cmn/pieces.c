#include "pieces.h"

#include <stdlib.h>

#include "log.h"
#include "transports/transport.h"

/* Small tensors that are neighbours travel together, up to so many floats. */
enum { TOGETHER = 8192 };

struct cutting {
    struct cmn_pieces *pieces;
    size_t *load; /* floats of each owner so far */
    int owners;
};

static void add(struct cutting *c, const struct cmn_piece *piece)
{
    c->load[piece->owner] += piece->n;
    c->pieces->piece[c->pieces->pieces++] = *piece;
}

static int least_loaded(const struct cutting *c)
{
    int owner = 0;

    for (int i = 1; i < c->owners; i++) {
        owner = c->load[i] < c->load[owner] ? i : owner;
    }
    return owner;
}

/* Puts a small tensor to the piece before it, if that is one of small tensors, too. */
static int joined(struct cutting *c, size_t at, size_t n)
{
    struct cmn_piece *last = c->pieces->pieces ? &c->pieces->piece[c->pieces->pieces - 1] : NULL;

    if (!last || !last->whole || at + n - last->at > TOGETHER) {
        return 0;
    }
    c->load[last->owner] += at + n - last->at - last->n;
    last->n = at + n - last->at;
    return 1;
}

static void cut_tensor(struct cutting *c, size_t at, const struct cmn_span *tensor,
                       int whole_tensors)
{
    struct cmn_piece piece = {.at = at, .n = tensor->n};

    if (tensor->n < CMN_PIECE_WHOLE) {
        if (!joined(c, at, tensor->n)) {
            piece.owner = least_loaded(c);
            piece.whole = 1;
            add(c, &piece);
        }
        return;
    }
    if (whole_tensors || c->owners == 1) {
        piece.rows = tensor->rows;
        piece.owner = least_loaded(c);
        add(c, &piece);
        return;
    }
    for (piece.owner = 0; piece.owner < c->owners; piece.owner++) {
        cmn_slice(tensor->n, c->owners, piece.owner, &piece.at, &piece.n);
        piece.at += at;
        if (piece.n) {
            add(c, &piece);
        }
    }
}

int cmn_pieces_open(struct cmn_pieces *p, const struct cmn_span *tensor, int tensors,
                    const struct cmn_span *block, size_t tally, int owners, int whole_tensors)
{
    struct cutting c = {p, calloc((size_t)owners, sizeof *c.load), owners};
    struct cmn_piece last = {.at = block->n, .n = tally, .whole = 1};

    p->pieces = 0;
    p->piece = calloc((size_t)tensors * (size_t)owners + 1, sizeof *p->piece);
    if (!p->piece || !c.load) {
        free(c.load);
        cmn_pieces_close(p);
        return cmn_fail("out of memory");
    }
    for (int i = 0; i < tensors; i++) {
        cut_tensor(&c, (size_t)(tensor[i].data - block->data), &tensor[i], whole_tensors);
    }
    add(&c, &last);
    free(c.load);
    return 0;
}

void cmn_pieces_close(struct cmn_pieces *p)
{
    free(p->piece);
    p->piece = NULL;
    p->pieces = 0;
}
