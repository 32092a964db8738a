/* Pieces: every float of a tensor is in one of them, in the order of the block, and owners have about as much to send. */
#include "check.h"

#include "pieces.h"

enum { TALLY = 16, LINE = 16, MOST = 5 };

static float memory[1 << 18];

/* Tensors one behind the other, each padded to whole lines. */
static size_t lay_out(struct cmn_span *tensor, const size_t *n, int tensors)
{
    size_t at = 0;

    for (int i = 0; i < tensors; i++) {
        tensor[i] = (struct cmn_span){memory + at, n[i], n[i] % 10 ? 0 : 10};
        at += (n[i] + LINE - 1) / LINE * LINE;
    }
    return at;
}

static void check_cover(const struct cmn_pieces *p, const struct cmn_span *tensor, int tensors, size_t block)
{
    static unsigned char seen[1 << 18];
    size_t end = 0;

    memset(seen, 0, sizeof seen);
    for (int i = 0; i < p->pieces; i++) {
        assert_true(p->piece[i].at >= end);
        end = p->piece[i].at + p->piece[i].n;
        memset(seen + p->piece[i].at, 1, p->piece[i].n);
    }
    for (int i = 0; i < tensors; i++) {
        for (size_t j = 0; j < tensor[i].n; j++) {
            assert_int_equal(seen[tensor[i].data - memory + (ptrdiff_t)j], 1);
        }
    }
    assert_int_equal(p->piece[p->pieces - 1].at, block);
    assert_int_equal(p->piece[p->pieces - 1].n, TALLY);
    assert_int_equal(p->piece[p->pieces - 1].whole, 1);
}

/* No owner has more to send than another by over the largest piece, and the lines that slices are rounded to. */
static void check_load(const struct cmn_pieces *p, int owners)
{
    size_t load[MOST] = {0}, least = SIZE_MAX, most = 0, largest = 0;

    for (int i = 0; i < p->pieces; i++) {
        assert_in_range(p->piece[i].owner, 0, owners - 1);
        load[p->piece[i].owner] += p->piece[i].n;
        largest = p->piece[i].n > largest ? p->piece[i].n : largest;
    }
    for (int i = 0; i < owners; i++) {
        least = load[i] < least ? load[i] : least;
        most = load[i] > most ? load[i] : most;
    }
    assert_true(most - least <= largest + LINE * (size_t)p->pieces);
}

static void check_form(const struct cmn_pieces *p, const struct cmn_span *tensor, int tensors, int uncut)
{
    for (int i = 0; i + 1 < p->pieces; i++) {
        const struct cmn_piece *piece = &p->piece[i];
        const struct cmn_span *of = tensor;
        while (of + 1 < tensor + tensors && (size_t)(of[1].data - memory) <= piece->at) {
            of++;
        }
        assert_int_equal(piece->whole, of->n < CMN_PIECE_WHOLE);
        assert_true(!piece->whole || piece->n <= 8192);
        assert_int_equal(piece->rows, uncut && !piece->whole ? of->rows : 0);
        assert_true(!uncut || piece->whole || piece->n == of->n);
    }
}

static void cut(void **state)
{
    static const size_t n[] = {5000, 90, 4096, 10000, 20, 4095, 4095, 31, 8000, 6000, 64, 7000, 1, 9000};
    struct cmn_span tensor[COUNT(n)];
    size_t block = lay_out(tensor, n, COUNT(n));
    const struct cmn_span whole = {.data = memory, .n = block};

    (void)state;
    for (int owners = 1; owners <= MOST; owners++) {
        for (int uncut = 0; uncut < 2; uncut++) {
            struct cmn_pieces p;
            assert_int_equal(cmn_pieces_open(&p, tensor, COUNT(n), &whole, TALLY, owners, uncut), 0);
            check_cover(&p, tensor, COUNT(n), block);
            check_load(&p, owners);
            check_form(&p, tensor, COUNT(n), uncut || owners == 1);
            cmn_pieces_close(&p);
            assert_null(p.piece);
        }
    }
}

/* Neighbours that are small travel together: fewer messages. */
static void together(void **state)
{
    static const size_t n[] = {100, 200, 50, 4000, 4000, 10};
    struct cmn_span tensor[COUNT(n)];
    size_t block = lay_out(tensor, n, COUNT(n));
    const struct cmn_span whole = {.data = memory, .n = block};
    struct cmn_pieces p;

    (void)state;
    assert_int_equal(cmn_pieces_open(&p, tensor, COUNT(n), &whole, TALLY, 2, 0), 0);
    assert_int_equal(p.pieces, 3);
    assert_int_equal(p.piece[1].at, tensor[4].data - memory);
    cmn_pieces_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut), cmocka_unit_test(together)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
