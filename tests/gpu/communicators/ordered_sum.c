/* Sums in a fixed order (cmn_exact) on GPUs, over the stand-in: the tree's bits, whoever has the
 * micro-batches, with lengths around a slice and a chunk. On the CPU: tests/ranks/communicators/. */
#include "gpu/gpu.h"

#include <math.h>

#include "communicators/ordered_sum.h"

enum { LARGE = (1 << 20) + 77 };

/* Numbers whose sums depend on the order: magnitudes from 2^-12 to 2^11. */
static float value_of(int step, int micro_batch, size_t i)
{
    uint64_t h = ((uint64_t)step * 1009 + (uint64_t)micro_batch) * 0x9e3779b97f4a7c15U + i;

    h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9U;
    h ^= h >> 29;
    return ldexpf((float)(h >> 40) / (1 << 23) - 1, (int)(h % 24) - 12);
}

/* A node's left child ends at the largest power of two below its length. */
static float sum_of(int step, int from, int end, size_t i)
{
    int power = 1;

    if (end - from == 1) {
        return value_of(step, from, i);
    }
    while (2 * power < end - from) {
        power *= 2;
    }
    return sum_of(step, from, from + power, i) + sum_of(step, from + power, end, i);
}

static void add_all(struct cmn_ordered_sum *s, struct gpu_block *x, int step, int first, int end)
{
    for (int m = first; m < end; m++) {
        for (size_t i = 0; i < x->n + 2 * GUARD; i++) {
            x->host[i] = i < GUARD || i >= x->n + GUARD ? mark : value_of(step, m, i - GUARD);
        }
        fake_later(x->memory, x->host, x->n + 2 * GUARD);
        cmn_ordered_sum_add(s, x->data);
        if (m + 1 < end) {
            read_block(x, "add");
            CHECK_SAYING(x->host[0] == 0 && x->host[x->n - 1] == 0, "%d is not taken away", m);
        }
    }
}

/* Steps with equal parts, then the first ranks with one each and the last one with the rest. */
static void try_sums(int micro_batches, size_t floats)
{
    struct cmn_ordered_sum *s = cmn_ordered_sum_open(&top, micro_batches, floats);
    int *deal = calloc((size_t)top.size + 1, sizeof *deal);
    struct gpu_block x;

    make_block(&x, floats);
    for (int rank = 0; rank <= top.size; rank++) {
        deal[rank] = cmn_ordered_sum_first(micro_batches, rank, top.size);
    }
    for (int step = 0; step < 4; step++) {
        if (step == 2) {
            for (int rank = 1; rank < top.size; rank++) {
                deal[rank] = rank < micro_batches ? rank : micro_batches;
            }
            cmn_ordered_sum_divide(s, deal);
        }
        add_all(s, &x, step, deal[top.rank], deal[top.rank + 1]);
        if (deal[top.rank] == deal[top.rank + 1]) {
            fill_block(&x, top.rank);
        }
        cmn_ordered_sum_complete(s, x.data);
        read_block(&x, "complete");
        for (size_t i = 0; i < floats; i++) {
            float wanted = sum_of(step, 0, micro_batches, i);
            CHECK_SAYING(!memcmp(&wanted, &x.host[i], sizeof wanted),
                         "step %d, %d micro-batches, %zu floats: %zu is %.9g, not %.9g", step,
                         micro_batches, floats, i, (double)x.host[i], (double)wanted);
        }
    }
    free_block(&x);
    free(deal);
    cmn_ordered_sum_close(s);
}

static void has_the_bits_of_the_tree(void **state)
{
    (void)state;
    all_well();
    for (int n = 1; n <= 13; n++) {
        try_sums(n, 37);
    }
    for (size_t floats = 1; floats <= 6; floats++) {
        try_sums(7, floats);
    }
    try_sums(3, LARGE);
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_bits_of_the_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
