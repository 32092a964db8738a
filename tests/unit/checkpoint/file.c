/* The file of a checkpoint: what was put in comes out, and nothing that was changed goes
 * unnoticed. */
#include "checkpoints.h"

#include <time.h>

static unsigned char *sealed(struct cmn_snapshot *s, long iteration, size_t *n)
{
    unsigned char *file = checkpoints_sealed(s, iteration, n);

    assert_non_null(file);
    cmn_snapshot_free(s);
    return file;
}

static struct cmn_checkpoint_file *parsed(const void *file, size_t n)
{
    struct cmn_checkpoint_file *f = cmn_checkpoint_parse(file, n);

    assert_done(f);
    return f;
}

static struct cmn_snapshot *described(void)
{
    struct cmn_snapshot *s = cmn_snapshot_new();

    assert_int_equal(cmn_snapshot_describe(s, cJSON_Parse("{\"a\":[1,\"x\\n\\\"\"]}")), 0);
    return s;
}

static const struct sample {
    const char *name;
    int rank;
    size_t bytes;
} samples[] = {
    {"empty", CMN_ALL_RANKS, 0},
    {"empty", 0, 0},
    {"one", 0, 1},
    {"zeros", 1, 1000},
    {"almost", 0, 63},
    {"a-line", 1000000, 64},
    {"and-more", 2, 65},
    {"middle", 3, 1 << 20},
    {"large", 0, 20 << 20},
    {"a-name-as-long-as-a-name-may-be-of-47-character", 0, 3},
};

static unsigned char byte_of(const struct sample *a, size_t i)
{
    return (unsigned char)(a->name[0] == 'z' ? 0 : i % 255 + 1);
}

TEST(tensors_come_out_as_they_went_in)
{
    struct cmn_snapshot *s = described();
    const struct cmn_checkpoint_tensor *t;
    unsigned char *file;
    struct cmn_checkpoint_file *f;
    size_t n;

    for (size_t i = 0; i < COUNT(samples); i++) {
        assert_int_equal(cmn_snapshot_tensor(s, samples[i].name, samples[i].rank, samples[i].bytes),
                         0);
    }
    assert_int_equal(cmn_snapshot_allocate(s), 0);
    for (size_t i = 0; i < COUNT(samples); i++) {
        unsigned char *data = cmn_snapshot_data(s, samples[i].name, samples[i].rank);
        assert_int_equal((uintptr_t)data % CMN_ALIGN, 0);
        for (size_t k = 0; k < samples[i].bytes; k++) {
            data[k] = byte_of(&samples[i], k);
        }
    }
    file = sealed(s, 123456789, &n);
    f = parsed(file, n);
    assert_int_equal(f->iteration, 123456789);
    assert_in_range(f->written, time(NULL) - 100, time(NULL));
    assert_int_equal(f->n, n);
    assert_int_equal(f->mark.weights, 0);
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(f->training, "a"), 1)->valuestring,
                        "x\n\"");
    for (size_t i = 0; i < COUNT(samples); i++) {
        t = cmn_checkpoint_tensor(f, samples[i].name, samples[i].rank);
        assert_non_null(t);
        assert_int_equal(t->bytes, samples[i].bytes);
        assert_int_equal((size_t)((const unsigned char *)t->data - file) % CMN_ALIGN, 0);
        for (size_t k = 0; k < t->bytes; k++) {
            if (((const unsigned char *)t->data)[k] != byte_of(&samples[i], k)) {
                fail_msg("%s: byte %zu", t->name, k);
            }
        }
    }
    assert_int_equal(f->tensors, COUNT(samples));
    for (size_t i = 1; i < f->tensors; i++) { /* by name, and then by rank */
        int order = strcmp(f->tensor[i - 1].name, f->tensor[i].name);
        assert_true(order < 0 || (!order && f->tensor[i - 1].rank < f->tensor[i].rank));
    }
    assert_null(cmn_checkpoint_tensor(f, "one", 1));
    assert_null(cmn_checkpoint_tensor(f, "one", CMN_ALL_RANKS));
    assert_null(cmn_checkpoint_tensor(f, "on", 0));
    assert_null(cmn_checkpoint_tensor(f, "a-name-as-long-as-a-name-may-be-of-48-characters", 0));
    cmn_checkpoint_free(f);
    free(file);
}

/* Parts of a tensor that the ranks have in common come one by one, in any order. */
TEST(a_common_tensor_grows)
{
    struct cmn_snapshot *s = described();
    const struct cmn_checkpoint_tensor *t;
    struct cmn_checkpoint_file *f;
    unsigned char *file;
    size_t n;

    assert_int_equal(cmn_snapshot_tensor(s, "a", CMN_ALL_RANKS, 100), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "b", 0, 64), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "a", CMN_ALL_RANKS, 300), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "a", CMN_ALL_RANKS, 200), 0);
    assert_int_equal(cmn_snapshot_allocate(s), 0);
    memset(cmn_snapshot_data(s, "b", 0), 'b', 64);
    memset((char *)cmn_snapshot_data(s, "a", CMN_ALL_RANKS) + 200, 'a', 100);
    file = sealed(s, 0, &n);
    f = parsed(file, n);
    t = cmn_checkpoint_tensor(f, "a", CMN_ALL_RANKS);
    assert_int_equal(t->bytes, 300);
    assert_memory_equal(t->data, ((const char[300]){[200 ... 299] = 'a'}), 300);
    assert_int_equal(f->tensors, 2);
    cmn_checkpoint_free(f);
    free(file);
}

/* Tensors that the weights hold are not stored again. */
TEST(tensors_of_the_weights)
{
    static const float written[] = {7, 1, 1, 1, 2, 3, 1, 2, 4}, one_two_four[] = {1, 2, 4},
                       five = 5;
    struct cmn_snapshot *s = described();
    const struct cmn_checkpoint_tensor *t;
    struct cmn_checkpoint_file *f;
    unsigned char *file;
    size_t n;

    assert_int_equal(cmn_snapshot_refer(s, "early", written, 4, 0), 0); /* nothing is written yet */
    assert_int_equal(fwrite(written, sizeof written, 1, cmn_snapshot_weights(s)), 1);
    assert_int_equal(cmn_snapshot_refer(s, "first", one_two_four, 8, 0), 20);
    assert_int_equal(cmn_snapshot_refer(s, "later", one_two_four, 8, 16), 32);
    assert_int_equal(cmn_snapshot_refer(s, "end", one_two_four, 12, 0), 36);
    assert_int_equal(cmn_snapshot_refer(s, "gone", one_two_four, 12, 28), 0);
    assert_int_equal(cmn_snapshot_refer(s, "gone", written, 40, 0), 0);
    assert_int_equal(cmn_snapshot_refer(s, "gone", &five, 4, 0), 0);
    assert_int_equal(cmn_snapshot_refer(s, "gone", written, 0, 0), 0);
    assert_int_equal(cmn_snapshot_refer(s, "a b", written, 4, 0), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "behind", CMN_ALL_RANKS, 4), 0);
    assert_int_equal(cmn_snapshot_allocate(s), 0);
    memset(cmn_snapshot_data(s, "behind", CMN_ALL_RANKS), 'b', 4);
    file = sealed(s, 0, &n);
    f = parsed(file, n);
    t = cmn_checkpoint_tensor(f, "later", CMN_ALL_RANKS);
    assert_true(t && t->in_weights && t->bytes == 8 && t->data == file + 24);
    t = cmn_checkpoint_tensor(f, "end", CMN_ALL_RANKS);
    assert_true(t && t->in_weights && t->bytes == 12 && t->data == file + 24);
    t = cmn_checkpoint_tensor(f, "behind", CMN_ALL_RANKS);
    assert_true(t && !t->in_weights && t->data == file + n - CMN_ALIGN);
    assert_memory_equal(t->data, "bbbb", 4);
    assert_int_equal(f->tensors, 4);
    cmn_checkpoint_free(f);
    free(file);
}

/* Weights of any length stand at the beginning, alone or not. The mark is where they end, and
 * tensors where a line begins. */
TEST(weights_come_first)
{
    static const size_t lengths[] = {0, 1, 4, 20, 63, 64, 65, 4096, 3000000};

    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct cmn_snapshot *s = described();
        unsigned char *file, *data = malloc(lengths[i] + 1);
        struct cmn_checkpoint_file *f;
        struct cmn_mark mark;
        size_t n;

        assert_non_null(data);
        memset(data, 7, lengths[i]);
        if (lengths[i]) {
            FILE *weights = cmn_snapshot_weights(s);
            fwrite(data, 1, lengths[i] / 2, weights);
            assert_ptr_equal(cmn_snapshot_weights(s), weights);
            fwrite(data, 1, lengths[i] - lengths[i] / 2, weights);
            assert_int_equal(ferror(weights), 0);
        }
        file = sealed(s, 0, &n);
        assert_memory_equal(file, data, lengths[i]);
        assert_int_equal(n % CMN_ALIGN, 0);
        assert_int_equal(cmn_mark_read(&mark, file + lengths[i]), 0);
        assert_int_equal(mark.weights, lengths[i]);
        assert_int_equal(mark.file, n);
        f = parsed(file, n);
        assert_int_equal(f->mark.weights, lengths[i]);
        assert_int_equal(f->tensors, 0);
        cmn_checkpoint_free(f);
        free(file);
        free(data);
    }
}

/* Weights may hold the magic by chance, and a whole mark of another checkpoint. */
TEST(weights_that_look_like_a_mark)
{
    struct cmn_mark mark = {.version = CMN_CHECKPOINT_VERSION, .weights = 7, .file = 9};
    struct cmn_snapshot *s = checkpoints_snapshot(1, 100);
    struct cmn_checkpoint_file *f;
    unsigned char bytes[CMN_MARK], *file;
    size_t n;

    cmn_mark_write(&mark, bytes);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fwrite(bytes, 1, i % 2 ? CMN_MARK : 16, cmn_snapshot_weights(s)),
                         i % 2 ? CMN_MARK : 16);
    }
    file = sealed(s, 3, &n);
    f = parsed(file, n);
    assert_int_equal(f->mark.weights, 100 + 50 * (CMN_MARK + 16));
    cmn_checkpoint_free(f);
    free(file);
}

TEST(what_a_snapshot_refuses)
{
    static const char *const names[] = {"", "a b", "a\n", "\x80",
                                        "a-name-as-long-as-a-name-may-be-of-48-characters"};
    struct cmn_snapshot *s = cmn_snapshot_new();
    struct iovec part[CMN_SNAPSHOT_PARTS];

    for (size_t i = 0; i < COUNT(names); i++) {
        assert_fails(cmn_snapshot_tensor(s, names[i], 0, 1) == -1, "is no name");
    }
    assert_fails(cmn_snapshot_describe(s, NULL) == -1, "out of memory");
    assert_fails(cmn_snapshot_seal(s, 1, part) == -1, "out of memory");
    assert_int_equal(cmn_snapshot_tensor(s, "a", 0, 1), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "b", 0, SIZE_MAX - 100), 0);
    assert_fails(cmn_snapshot_allocate(s) == -1, "out of memory");
    cmn_snapshot_free(s);
    cmn_snapshot_free(NULL);
}

/* A small one with several tensors. */
static unsigned char *small(size_t *n)
{
    struct cmn_snapshot *s = described();
    char data[70];

    memset(data, 'w', sizeof data);
    fwrite(data, 1, sizeof data, cmn_snapshot_weights(s));
    assert_int_equal(cmn_snapshot_tensor(s, "value", CMN_ALL_RANKS, 4), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "empty", 0, 0), 0);
    assert_int_equal(cmn_snapshot_tensor(s, "more", 2, 65), 0);
    assert_int_equal(cmn_snapshot_allocate(s), 0);
    memset(cmn_snapshot_data(s, "value", CMN_ALL_RANKS), 5, 4);
    return sealed(s, 77, n);
}

static void refused(const void *bytes, size_t n, const char *why)
{
    cmn_fail("no reason was given");
    assert_fails(!cmn_checkpoint_parse(bytes, n), why);
}

static const struct {
    long at; /* below 0: from the end */
    const char *why;
} damages[] = {{3, "weights: wrong checksum"},
               {70 + 3, "no mark behind weights"},
               {70 + 17, "no mark behind weights"},
               {70 + CMN_MARK + 9, "its header: wrong checksum"},
               {40 - 3 * CMN_ALIGN, "tensor value: wrong checksum"}, /* the zeros behind it */
               {-1, "tensor more of rank 2: wrong checksum"}};

TEST(every_flipped_bit_is_noticed)
{
    size_t n;
    unsigned char *file = small(&n);

    cmn_checkpoint_free(parsed(file, n));
    assert_true(n < 1024);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refused(file, n, "");
        assert_null(strstr(cmn_reason(), "no reason"));
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t i = 0; i < COUNT(damages); i++) {
        unsigned char *at = file + damages[i].at + (damages[i].at < 0 ? n : 0);
        *at ^= 1;
        refused(file, n, damages[i].why);
        *at ^= 1;
    }
    cmn_checkpoint_free(parsed(file, n));
    free(file);
}

TEST(every_other_length_is_noticed)
{
    size_t n;
    unsigned char *file = small(&n), *cut;
    char text[96];

    for (size_t i = 0; i < n; i++) {
        /* Memory of just this size: a sanitizer sees who reads on. */
        cut = malloc(i ? i : 1);
        assert_non_null(cut);
        memcpy(cut, file, i);
        snprintf(text, sizeof text, "truncated: %zu of %zu bytes", i, n);
        refused(cut, i, i >= 70 + CMN_MARK ? text : i ? "truncated, damaged" : "it is empty");
        free(cut);
    }
    cut = calloc(1, 2 * n);
    assert_non_null(cut);
    memcpy(cut, file, n);
    for (size_t i = n + 1; i < 2 * n; i++) {
        snprintf(text, sizeof text, "it has %zu bytes, and should have %zu", i, n);
        refused(cut, i, text);
    }
    memcpy(cut + n, file, n);
    refused(cut, 2 * n, "should have");
    free(cut);
    free(file);
}

TEST(what_follows_weights)
{
    size_t n;
    unsigned char *bytes = small(&n);
    FILE *file = tmpfile();

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    for (long at = 0; at < (long)n; at++) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(cmn_checkpoint_follows_weights(file), at == 70);
        assert_int_equal(ftell(file), at);
        assert_int_equal(fgetc(file), bytes[at]);
    }
    fseek(file, 0, SEEK_END);
    assert_int_equal(cmn_checkpoint_follows_weights(file), 0);
    fclose(file);
    free(bytes);
}

TESTS(NULL, NULL)
