/* Every compressor over all ranks: bytes as documented, sums of what travels exactly, a time
 * limit, and what only one compressor has. */
#include "compressors.h"

#include "mpi/group.h"

static const struct form forms_of_all_kinds[] = {
    {10, 0}, {64 * 100, 64}, {300, 0}, {200 * 350, 200}, {5000, 0}, {66000 * 2, 0}, {4096, 4096}};

/* Bytes that this rank sends in a sum of n values of `bytes`: its part of the others' slices, and
 * its own slice to each. */
static unsigned long long dense_bytes(size_t n, size_t bytes)
{
    size_t at, own;

    cmn_slice(n, top.size, top.rank, &at, &own);
    return (unsigned long long)(bytes * (n - own + (size_t)(top.size - 1) * own));
}

/* What docs and the tops of the files say. */
static unsigned long long documented(const char *name, const struct cmn_shard *shard)
{
    size_t rows = (size_t)shard->rows, rank = (size_t)options.compress_rank;
    size_t columns = rows ? shard->n / rows : 0;

    if (!strcmp(name, "powersgd") && !shard->exact && rows && (rows + columns) * rank < shard->n) {
        return dense_bytes(rows * rank, 4) + dense_bytes(columns * rank, 4);
    }
    return dense_bytes(shard->n, strstr(name, "16") && !shard->exact ? 2 : 4);
}

OF_EACH(sends_what_it_says)
{
    enum { STEPS = 8 };
    const long rank = options.compress_rank;
    unsigned long long want, is;
    struct work w;

    for (int turn = 0; turn < 2; turn++) {
        options.compress_rank = turn ? 1 : rank;
        make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
        want = 0;
        for (int i = 0; i < w.shards.shards; i++) {
            want += STEPS * documented(compressor->name, &w.shards.shard[i]);
        }
        for (int s = 0; s < STEPS; s++) {
            fill_random(&w, (uint64_t)(s * 16 + top.rank));
            step(&w);
        }
        is = compressor->sent(w.self);
        CHECK_SAYING(is == want, "%s: sent %llu bytes, not %llu", compressor->name, is, want);
        end_work(&w);
    }
    options.compress_rank = rank;
}

/* Small tensors and the metrics: numbers that no 16 bits hold. */
OF_EACH(leaves_small_tensors_exact)
{
    static const struct form small[] = {{10, 0}, {4095, 0}, {9 * 400, 9}, {1, 0}};
    struct work w;

    make_work(&w, compressor, small, COUNT(small));
    for (int s = 0; s < 2; s++) {
        for (int t = 0; t < w.tensors; t++) {
            for (size_t i = 0; i < w.tensor[t].n; i++) {
                w.tensor[t].data[i] = (float)(i + 1) * 101 * (float)(top.rank + 1);
            }
        }
        step(&w);
        for (int t = 0; t < w.tensors; t++) {
            for (size_t i = 0; i < w.tensor[t].n; i++) {
                float want = (float)(i + 1) * 101 * (float)(top.size * (top.size + 1) / 2),
                      is = w.tensor[t].data[i];
                CHECK_SAYING(is == want, "%s, tensor %d, at %zu: %.9g, not %.9g", compressor->name,
                             t, i, (double)is, (double)want);
            }
        }
    }
    end_work(&w);
}

/* Rank 0 does not come. The others would end the job, and say why; when it comes after all, all
 * is summed. */
OF_EACH(does_not_wait_for_ever)
{
    struct work w;
    long timeout = options.timeout;

    options.timeout = top.rank ? 1 : timeout;
    make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
    fill_carried(&w, 0);
    if (top.rank) {
        const char *said;
        for (int i = 0; i < w.shards.shards; i++) {
            compressor->begin(w.self, i);
        }
        CHECK(compressor->progress(w.self, 0) == 0);
        said = fatal_of(compressor->progress(w.self, w.shards.shards));
        CHECK_SAYING(said && check_lost && strstr(said, "nothing came from rank ") &&
                         strstr(said, "cmn_timeout"),
                     "%s: %s", compressor->name, said);
    }
    MPI_Barrier(top.world);
    options.timeout = timeout;
    if (top.rank == 0) {
        step(&w);
    } else {
        long ended = 0;
        for (int i = 0; i < 600000 && ended < w.shards.shards; i++) {
            ended = compressor->progress(w.self, 0);
            usleep(100);
        }
        CHECK_SAYING(ended == w.shards.shards, "%s: %ld", compressor->name, ended);
    }
    check_carried(&w, 0);
    MPI_Barrier(top.world);
    end_work(&w);
}

/* powersgd: the directions in which all ranks look are the same, else a sum of what they see
 * means nothing. */
RANK_TEST(directions_agree)
{
    const struct cmn_compressor *compressor = NULL;
    struct cmn_state state;
    struct work w;

    for (int i = 0;
         (compressor = cmn_compressor_at(i)) && strcmp(compressor->name, "powersgd") != 0; i++) {
    }
    assert_non_null(compressor);
    make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
    for (int s = 0; s < 3; s++) {
        fill_random(&w, (uint64_t)(s * 16 + top.rank));
        step(&w);
        if (top.size > 1) {
            CHECK(compressor->state(w.self, 1, &state) == 1 && strstr(state.name, "directions"));
            CHECK(same_everywhere(state.data, state.bytes));
        }
    }
    CHECK(compressor->state(w.self, top.size > 1 ? 2 : 0, &state) == 0);
    end_work(&w);
}

RANK_TESTS(NULL, NULL)
