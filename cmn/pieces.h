/* How the block of gradients is cut for the exchange between nodes: pieces, and which rank of a node sends each.
 *
 * Pieces follow from the tensors alone, so what a codec does to a piece does not depend on which pieces are
 * exchanged together (a bucket). Pure bookkeeping: all local. */
#ifndef CMN_PIECES_H
#define CMN_PIECES_H

#include <stddef.h>

/* n floats at data; a matrix of rows × n / rows, row by row, or, with rows = 0, none. */
struct cmn_span {
    float *data;
    size_t n;
    int rows;
};

struct cmn_piece {
    size_t at, n; /* floats from the block's begin */
    int rows;     /* the piece is a matrix of rows × n / rows, row by row; 0: it is none */
    int owner;    /* the rank of each node (by intra_rank) that sends it */
    int whole;    /* 1: travels as it is, never through a lossy codec */
};

struct cmn_pieces {
    struct cmn_piece *piece; /* in the order of the block; the tally is the last */
    int pieces;
};

/* Tensors below this many floats travel whole: they are few bytes, and biases and scales matter. */
enum { CMN_PIECE_WHOLE = 4096 };

/* Cuts the tensors, which lie in the order of `block`, and the tally behind it for `owners` ranks a node. With whole_tensors
 * each tensor that is not small is one piece. 0, or -1 with a reason. */
int cmn_pieces_open(struct cmn_pieces *p, const struct cmn_span *tensor, int tensors,
                    const struct cmn_span *block, size_t tally, int owners, int whole_tensors);

void cmn_pieces_close(struct cmn_pieces *p);

#endif
