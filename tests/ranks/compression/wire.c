/* Every compressor over all ranks: bytes as documented, sums of what travels exactly, a time
 * limit, and what only one compressor has. */
#include "compressors.h"

#include "base/memory.h"
#include "compression/owners.h"
#include "compression/select.h"
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

/* How many values topk selects. */
static size_t selected(const struct cmn_shard *shard, int step)
{
    size_t k = (size_t)(options.compress_ratio * (double)shard->n + 0.5), more;

    if (step >= options.compress_warmup) {
        return k;
    }
    more = step < options.compress_warmup / 3       ? 8 * k
           : step < options.compress_warmup * 2 / 3 ? 4 * k
                                                    : 2 * k;
    return more < shard->n / 2 ? more : shard->n / 2;
}

/* What docs and the tops of the files say. */
static unsigned long long documented(const char *name, const struct cmn_shard *shard, int step)
{
    size_t others = (size_t)top.size - 1, rows = (size_t)shard->rows,
           rank = (size_t)options.compress_rank;
    size_t columns = rows ? shard->n / rows : 0;

    if (!strcmp(name, "topk") && !shard->exact) {
        return others * (4 * selected(shard, step) + 4 * ((shard->n + 65535) / 65536));
    }
    if (!strcmp(name, "powersgd") && !shard->exact && rows && (rows + columns) * rank < shard->n) {
        return dense_bytes(rows * rank, 4) + dense_bytes(columns * rank, 4);
    }
    return dense_bytes(shard->n, strstr(name, "16") && !shard->exact ? 2 : 4);
}

/* Whether topk's values go to the owners of their slices. */
static int has_owners(const struct work *w, const struct cmn_shard *shard)
{
    return !strcmp(w->compressor->name, "topk") && !shard->exact && top.size > 1 &&
           cmn_owners_pay(top.size, shard->n, selected(shard, (int)options.compress_warmup));
}

/* Of a shard with owners: 4 bytes for each value that another rank owns, and this rank's slice of the
 * sums to each. `kept` and `fresh` are what it selects from. */
static unsigned long long bytes_by_owners(float *kept, float *fresh, const float *sum, size_t n,
                                          size_t k)
{
    size_t at, own, others = 0, mine;
    uint32_t *index = malloc(cmn_select_room(n, k) * sizeof *index);
    float *value = malloc(cmn_select_room(n, k) * sizeof *value);
    unsigned char *wire = malloc(4 * n + 8);

    cmn_select(kept, fresh, n, k, index, value);
    for (int r = 0; r < top.size; r++) {
        size_t in = 0;
        cmn_slice(n, top.size, r, &at, &own);
        for (size_t i = 0; i < k; i++) {
            in += index[i] >= at && index[i] < at + own;
        }
        others += r == top.rank ? 0 : 4 * in + 4 * ((own + 65535) / 65536);
    }
    cmn_slice(n, top.size, top.rank, &at, &own);
    mine = cmn_merged_write(sum + at, own, wire);
    free(index);
    free(value);
    free(wire);
    return others + (unsigned long long)(top.size - 1) * mine;
}

/* Bytes of a step; `kept` and `fresh`: before it, all shards. */
static unsigned long long documented_of_step(const struct work *w, float *kept, float *fresh,
                                             int step)
{
    unsigned long long bytes = 0;
    size_t kept_at = 0;

    for (int i = 0; i < w->shards.shards; i++) {
        const struct cmn_shard *shard = &w->shards.shard[i];
        bytes += has_owners(w, shard)
                     ? bytes_by_owners(kept + kept_at, fresh + shard->at, w->block + shard->at,
                                       shard->n, selected(shard, step))
                     : documented(w->compressor->name, shard, step);
        kept_at += shard->exact ? 0 : shard->n;
    }
    return bytes;
}

/* A copy of what topk keeps, and of the block. */
static void look_before(const struct work *w, float *kept, float *fresh)
{
    struct cmn_state state;

    memcpy(fresh, w->block, w->floats * sizeof *fresh);
    if (!strcmp(w->compressor->name, "topk") && w->compressor->state(w->self, 0, &state) &&
        !strcmp(state.name, "kept by topk")) {
        memcpy(kept, state.data, state.bytes);
    }
}

static void sends_what_it_says(const struct cmn_compressor *compressor)
{
    unsigned long long want = 0, is;
    float *kept, *fresh;
    struct work w;

    for (int turn = 0; turn < 3; turn++) {
        options.compress_ratio = (const double[]){0.5, 0.01, 0.1}[turn];
        options.compress_warmup = (const long[]){0, 0, 6}[turn];
        make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
        want = 0;
        kept = calloc(w.floats, sizeof *kept);
        fresh = calloc(w.floats, sizeof *fresh);
        for (int s = 0; s < 8; s++) {
            fill_random(&w, (uint64_t)(s * 16 + top.rank));
            look_before(&w, kept, fresh);
            step(&w);
            want += documented_of_step(&w, kept, fresh, s);
        }
        free(kept);
        free(fresh);
        is = compressor->sent(w.self);
        CHECK_SAYING(is == want, "%s: sent %llu bytes, not %llu", compressor->name, is, want);
        end_work(&w);
    }
    options.compress_ratio = 0.5;
    options.compress_warmup = 0;
}

/* Small tensors and the metrics: numbers that no 16 bits hold. */
static void leaves_small_tensors_exact(const struct cmn_compressor *compressor)
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
static void does_not_wait_for_ever(const struct cmn_compressor *compressor)
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
static void directions_agree(void **unused)
{
    const struct cmn_compressor *compressor = NULL;
    struct cmn_state state;
    struct work w;

    (void)unused;
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
    fail_on_all_ranks();
}

/* topk: passed on from rank to rank as each algorithm has it, the values are the same, as are the
 * bytes. */
static void topk_sums_alike_by_all(void **unused)
{
    static const int by[] = {CMN_EXCHANGE_PAIRWISE, CMN_EXCHANGE_HALVING, CMN_EXCHANGE_RING,
                             CMN_EXCHANGE_AUTO};
    const struct cmn_compressor *compressor = NULL;
    unsigned long long sent, all_sent = 0;
    float *first = NULL;
    struct work w;

    (void)unused;
    for (int i = 0; (compressor = cmn_compressor_at(i)) && strcmp(compressor->name, "topk"); i++) {
    }
    assert_non_null(compressor);
    for (int i = 0; i < (int)COUNT(by); i++) {
        options.exchange = by[i];
        make_work(&w, compressor, forms_of_all_kinds, COUNT(forms_of_all_kinds));
        for (int s = 0; s < 3; s++) {
            fill_random(&w, (uint64_t)(s * 16 + top.rank));
            step(&w);
        }
        sent = compressor->sent(w.self);
        MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, top.world);
        if (i == 0) {
            first = cmn_alloc_floats(w.floats);
            memcpy(first, w.block, w.floats * sizeof *first);
            all_sent = sent;
        }
        CHECK_SAYING(sent == all_sent, "by %d: %llu bytes, not %llu", by[i], sent, all_sent);
        for (int j = 0; j < w.shards.shards; j++) {
            const struct cmn_shard *shard = &w.shards.shard[j];
            CHECK_SAYING(shard->exact || !memcmp(first + shard->at, w.block + shard->at,
                                                 shard->n * sizeof *first),
                         "by %d: shard %d", by[i], j);
        }
        end_work(&w);
    }
    free(first);
    options.exchange = CMN_EXCHANGE_AUTO;
    fail_on_all_ranks();
}

#define TEST(name)                       \
    static void name##_all(void **state) \
    {                                    \
        (void)state;                     \
        for_all(name);                   \
    }
TEST(sends_what_it_says)
TEST(leaves_small_tensors_exact)
TEST(does_not_wait_for_ever)

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_what_it_says_all),
        cmocka_unit_test(leaves_small_tensors_exact_all),
        cmocka_unit_test(does_not_wait_for_ever_all),
        cmocka_unit_test(directions_agree),
        cmocka_unit_test(topk_sums_alike_by_all),
    };

    cmn_options_default(&options);
    options.compress_ratio = 0.5;
    return cmocka_run_group_tests_name("compressors_wire", tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(run);
}
