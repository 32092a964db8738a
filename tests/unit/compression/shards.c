/* Shards: every float of a tensor is in one of them, in the order of the block, and owners have
 * about as much to send. */
#include "check.h"

#include "compression/shards.h"

enum { METRICS = 16, LINE = 16, MOST = 5 };

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

static void check_cover(const struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                        size_t block)
{
    static unsigned char seen[1 << 18];
    size_t end = 0;

    memset(seen, 0, sizeof seen);
    for (int i = 0; i < p->shards; i++) {
        assert_true(p->shard[i].at >= end);
        end = p->shard[i].at + p->shard[i].n;
        memset(seen + p->shard[i].at, 1, p->shard[i].n);
    }
    for (int i = 0; i < tensors; i++) {
        for (size_t j = 0; j < tensor[i].n; j++) {
            assert_int_equal(seen[tensor[i].data - memory + (ptrdiff_t)j], 1);
        }
    }
    assert_int_equal(p->shard[p->shards - 1].at, block);
    assert_int_equal(p->shard[p->shards - 1].n, METRICS);
    assert_int_equal(p->shard[p->shards - 1].exact, 1);
}

/* No owner has more to send than another by over the largest shard, and the lines that slices are
 * rounded to. */
static void check_load(const struct cmn_shards *p, int owners)
{
    size_t load[MOST] = {0}, least = SIZE_MAX, most = 0, largest = 0;

    for (int i = 0; i < p->shards; i++) {
        assert_in_range(p->shard[i].owner, 0, owners - 1);
        load[p->shard[i].owner] += p->shard[i].n;
        largest = p->shard[i].n > largest ? p->shard[i].n : largest;
    }
    for (int i = 0; i < owners; i++) {
        least = load[i] < least ? load[i] : least;
        most = load[i] > most ? load[i] : most;
    }
    assert_true(most - least <= largest + LINE * (size_t)p->shards);
}

static void check_form(const struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                       int uncut)
{
    for (int i = 0; i + 1 < p->shards; i++) {
        const struct cmn_shard *shard = &p->shard[i];
        const struct cmn_span *of = tensor;
        while (of + 1 < tensor + tensors && (size_t)(of[1].data - memory) <= shard->at) {
            of++;
        }
        assert_int_equal(shard->exact, of->n < CMN_SHARD_EXACT_BELOW);
        assert_true(!shard->exact || shard->n <= 8192);
        assert_int_equal(shard->rows, uncut && !shard->exact ? of->rows : 0);
        assert_true(!uncut || shard->exact || shard->n == of->n);
    }
}

TEST(cut)
{
    static const size_t n[] = {5000, 90,   4096, 10000, 20,   4095, 4095,
                               31,   8000, 6000, 64,    7000, 1,    9000};
    struct cmn_span tensor[COUNT(n)];
    size_t block = lay_out(tensor, n, COUNT(n));
    const struct cmn_span whole = {.data = memory, .n = block};

    for (int owners = 1; owners <= MOST; owners++) {
        for (int uncut = 0; uncut < 2; uncut++) {
            struct cmn_shards p;
            cmn_shards_open(&p, tensor, COUNT(n), &whole, METRICS, owners, uncut);
            check_cover(&p, tensor, COUNT(n), block);
            check_load(&p, owners);
            check_form(&p, tensor, COUNT(n), uncut || owners == 1);
            cmn_shards_close(&p);
            assert_null(p.shard);
        }
    }
}

/* Neighbours that are small travel together: fewer messages. */
TEST(together)
{
    static const size_t n[] = {100, 200, 50, 4000, 4000, 10};
    struct cmn_span tensor[COUNT(n)];
    size_t block = lay_out(tensor, n, COUNT(n));
    const struct cmn_span whole = {.data = memory, .n = block};
    struct cmn_shards p;

    cmn_shards_open(&p, tensor, COUNT(n), &whole, METRICS, 2, 0);
    assert_int_equal(p.shards, 3);
    assert_int_equal(p.shard[1].at, tensor[4].data - memory);
    cmn_shards_close(&p);
}

TESTS(NULL, NULL)
