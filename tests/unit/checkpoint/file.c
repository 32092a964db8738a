/* The file of a checkpoint: what was put in comes out, and nothing that was changed goes unnoticed. */
#include "checkpoints.h"

#include "checkpoint/format.h"

/* The snapshot as a file in memory; the caller frees. */
static unsigned char *sealed(struct cmn_snapshot *s, long iteration, size_t *n)
{
    const void *bytes = cmn_snapshot_seal(s, iteration, n);
    unsigned char *copy;

    assert_non_null(bytes);
    copy = malloc(*n);
    assert_non_null(copy);
    memcpy(copy, bytes, *n);
    cmn_snapshot_free(s);
    return copy;
}

struct sample {
    const char *name;
    int rank;
    size_t lead, body, tail; /* zeros, others, zeros */
};

static const struct sample samples[] = {
    {"empty", CMN_NO_RANK, 0, 0, 0},
    {"empty", 0, 0, 0, 0},
    {"one", 0, 0, 1, 0},
    {"one-zero", 0, 1, 0, 0},
    {"zeros", 1, 1000, 0, 0},
    {"many-zeros", 1, 10 << 20, 0, 0},
    {"lead", 0, 777, 3, 0},
    {"tail", 0, 0, 5, 12345},
    {"both", 1000000, 64, 64, 64},
    {"long-lead", 2, 3 << 20, 17, 0},
    {"long-tail", 2, 0, 17, 3 << 20},
    {"middle", 3, 1 << 20, 3, 1 << 20},
    {"large", 0, 1, 20 << 20, 9},
    {"a-name-as-long-as-a-name-may-be-of-47-character", 0, 1, 1, 1},
};

static unsigned char *sample_bytes(const struct sample *a, size_t *n)
{
    unsigned char *bytes;

    *n = a->lead + a->body + a->tail;
    bytes = calloc(*n + 1, 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < a->body; i++) {
        bytes[a->lead + i] = (unsigned char)(i % 255 + 1);
    }
    return bytes;
}

static void sections_come_out_as_they_went_in(void **state)
{
    struct cmn_snapshot *s = checkpoints_snapshot(1, 100003);
    unsigned char *file, *bytes;
    struct cmn_checkpoint_file *f;
    size_t n, m;

    (void)state;
    for (size_t i = 0; i < COUNT(samples); i++) {
        bytes = sample_bytes(&samples[i], &n);
        assert_int_equal(cmn_snapshot_add(s, samples[i].name, samples[i].rank, bytes, n), 0);
        free(bytes);
    }
    file = sealed(s, 123456789, &n);
    assert_true(n < (22 << 20)); /* zeros take little */
    f = cmn_checkpoint_parse(file, n);
    assert_non_null(f);
    assert_int_equal(cmn_checkpoint_iteration(f), 123456789);
    assert_int_equal(cmn_checkpoint_sections(f), COUNT(samples) + 2);
    for (size_t i = 0; i < COUNT(samples); i++) {
        const void *out = cmn_checkpoint_section(f, samples[i].name, samples[i].rank, &m);
        bytes = sample_bytes(&samples[i], &n);
        assert_non_null(out);
        assert_int_equal(m, n);
        assert_memory_equal(out, bytes, n);
        assert_int_equal((uintptr_t)out % (n ? 16 : 1), 0);
        free(bytes);
    }
    assert_null(cmn_checkpoint_section(f, "one", 1, &m));
    assert_int_equal(m, 0);
    assert_null(cmn_checkpoint_section(f, "on", 0, &m));
    assert_null(cmn_checkpoint_section(f, "zeros", 0, &m));
    cmn_checkpoint_free(f);
    free(file);
}

static void equal_bytes_are_stored_once(void **state)
{
    struct cmn_snapshot *s = checkpoints_snapshot(1, 10);
    size_t n, alone, bytes = 100000;
    char *data = malloc(bytes);
    struct cmn_checkpoint_file *f;
    struct cmn_checkpoint_section section;
    unsigned char *file;

    (void)state;
    assert_non_null(data);
    memset(data, 'x', bytes);
    data[0] = 0;
    assert_int_equal(cmn_snapshot_add(s, "momentum", 0, data, bytes), 0);
    file = sealed(s, 1, &alone);
    free(file);
    s = checkpoints_snapshot(1, 10);
    assert_int_equal(cmn_snapshot_add(s, "momentum", 0, data, bytes), 0);
    assert_int_equal(cmn_snapshot_same(s, "momentum", 1, 0), 0);
    assert_int_equal(cmn_snapshot_same(s, "momentum", 2, 1), 0);
    assert_int_equal(cmn_snapshot_same(s, "momentum", 3, 7), -1);
    check_contains(cmn_reason(), "section momentum of rank 7");
    assert_int_equal(cmn_snapshot_same(s, "value", 1, 0), -1);
    file = sealed(s, 1, &n);
    assert_true(n <= alone + 3 * CMN_ENTRY);
    f = cmn_checkpoint_parse(file, n);
    assert_non_null(f);
    for (int rank = 0; rank < 3; rank++) {
        const void *out = cmn_checkpoint_section(f, "momentum", rank, &n);
        assert_int_equal(n, bytes);
        assert_memory_equal(out, data, bytes);
    }
    for (size_t i = 0; i < 3; i++) {
        cmn_checkpoint_at(f, i, &section);
        assert_string_equal(section.name, "momentum");
        assert_int_equal(section.rank, i);
        assert_int_equal(section.bytes, bytes);
        assert_int_equal(section.stored, i ? 0 : bytes - 1);
    }
    cmn_checkpoint_at(f, 4, &section);
    assert_string_equal(section.name, "weights");
    assert_int_equal(section.rank, CMN_NO_RANK);
    assert_int_equal(section.stored, 10);
    cmn_checkpoint_free(f);
    free(file);
    free(data);
}

/* Weights of any length stand at the beginning, alone or not. */
static void weights_come_first(void **state)
{
    static const size_t lengths[] = {0, 1, 63, 64, 65, 4096, 3000000};

    (void)state;
    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct cmn_snapshot *s = cmn_snapshot_new();
        unsigned char *file, *data = malloc(lengths[i] + 1);
        struct cmn_checkpoint_file *f;
        size_t n, m;

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
        f = cmn_checkpoint_parse(file, n);
        assert_non_null(f);
        assert_int_equal(cmn_checkpoint_sections(f), 1);
        assert_ptr_equal(cmn_checkpoint_section(f, "weights", CMN_NO_RANK, &m), file);
        assert_int_equal(m, lengths[i]);
        cmn_checkpoint_free(f);
        free(file);
        free(data);
    }
}

/* What lies between sections is zero, also in memory that held other things. */
static void memory_that_was_used(void **state)
{
    struct cmn_snapshot *s = checkpoints_snapshot(1, 5000);
    const unsigned char *file;
    size_t n;
    int i;

    (void)state;
    assert_non_null(cmn_snapshot_seal(s, 1, &n));
    cmn_snapshot_clear(s);
    assert_int_equal(fputc('x', cmn_snapshot_weights(s)), 'x');
    assert_int_equal(cmn_snapshot_add(s, "a", 0, "xx", 2), 0);
    file = cmn_snapshot_seal(s, 1, &n);
    assert_non_null(file);
    for (i = 1; i < CMN_ALIGN; i++) {
        assert_int_equal(file[i], 0);
    }
    for (i = 128 + 2; i < 192; i++) {
        assert_int_equal(file[i], 0);
    }
    assert_int_equal(n, 192 + 192 + CMN_TRAILER);
    cmn_snapshot_free(s);
}

static void what_a_snapshot_refuses(void **state)
{
    static const char *const names[] = {
        "", "a b", "a\n", "\x80", "weights", "a-name-as-long-as-a-name-may-be-of-48-characters"};
    struct cmn_snapshot *s = cmn_snapshot_new();

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(cmn_snapshot_add(s, names[i], 0, "x", 1), -1);
        check_contains(cmn_reason(), "is no name");
        assert_int_equal(cmn_snapshot_same(s, names[i], 0, 0), -1);
    }
    assert_int_equal(cmn_snapshot_add(s, "a", 0, "x", 1), 0);
    assert_null(cmn_snapshot_weights(s));
    check_contains(cmn_reason(), "before");
    assert_null(cmn_snapshot_room(s, "b", 0, SIZE_MAX - 100));
    check_contains(cmn_reason(), "out of memory");
    /* Without what had no room it would be no checkpoint. */
    assert_int_equal(cmn_snapshot_add(s, "c", 0, "x", 1), -1);
    cmn_snapshot_free(s);
}

/* A small one with several sections. */
static unsigned char *small(size_t *n)
{
    struct cmn_snapshot *s = checkpoints_snapshot(5, 70);

    assert_int_equal(cmn_snapshot_add(s, "zeros", 0, "\0\0\0x\0", 5), 0);
    assert_int_equal(cmn_snapshot_add(s, "empty", 0, "", 0), 0);
    assert_int_equal(cmn_snapshot_same(s, "zeros", 1, 0), 0);
    return sealed(s, 77, n);
}

static void refused(const void *bytes, size_t n, const char *why)
{
    struct cmn_checkpoint_file *f;

    cmn_fail("no reason was given");
    f = cmn_checkpoint_parse(bytes, n);
    if (f) {
        fail_msg("accepted: %s", why);
    }
    check_contains(cmn_reason(), why);
}

static void every_flipped_bit_is_noticed(void **state)
{
    enum { VALUE = 192 }; /* behind 70 bytes of weights and the head */
    size_t n;
    unsigned char *file = small(&n);
    struct cmn_checkpoint_file *f = cmn_checkpoint_parse(file, n);

    (void)state;
    assert_non_null(f);
    cmn_checkpoint_free(f);
    assert_true(n < 1024);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (unsigned char)(1 << bit);
            refused(file, n, "");
            if (strstr(cmn_reason(), "no reason")) {
                fail_msg("byte %zu: no reason", i);
            }
            file[i] ^= (unsigned char)(1 << bit);
        }
    }
    file[VALUE] ^= 1;
    refused(file, n, "section value: wrong checksum");
    file[VALUE] ^= 1;
    file[3] ^= 1;
    refused(file, n, "section weights: wrong checksum");
    file[3] ^= 1;
    file[n - CMN_TRAILER - 2 * CMN_ENTRY] ^= 1;
    refused(file, n, "its index: wrong checksum");
    file[n - CMN_TRAILER - 2 * CMN_ENTRY] ^= 1;
    file[71] ^= 1; /* between weights and head */
    refused(file, n, "outside of its sections");
    file[71] ^= 1;
    f = cmn_checkpoint_parse(file, n);
    assert_non_null(f);
    cmn_checkpoint_free(f);
    free(file);
}

static void every_other_length_is_noticed(void **state)
{
    size_t n;
    unsigned char *file = small(&n), *cut;
    char text[64];

    (void)state;
    for (size_t i = 0; i < n; i++) {
        /* Memory of just this size: a sanitizer sees who reads on. */
        cut = malloc(i ? i : 1);
        assert_non_null(cut);
        memcpy(cut, file, i);
        snprintf(text, sizeof text, "truncated: %zu of %zu bytes", i, n);
        refused(cut, i, i >= 128 + CMN_HEAD ? text : i ? "its end is missing" : "it is empty");
        free(cut);
    }
    cut = calloc(1, 2 * n);
    assert_non_null(cut);
    memcpy(cut, file, n);
    for (size_t i = n + 1; i < 2 * n; i++) {
        refused(cut, i, "end is damaged");
    }
    memcpy(cut + n, file, n);
    refused(cut, 2 * n, "should have");
    free(cut);
    free(file);
}

static void what_stands_behind_weights(void **state)
{
    size_t n;
    unsigned char *bytes = small(&n);
    FILE *file = tmpfile();

    (void)state;
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    for (long at = 0; at < (long)n; at++) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(cmn_checkpoint_behind(file), at == 70);
        assert_int_equal(ftell(file), at);
        assert_int_equal(fgetc(file), bytes[at]);
    }
    fseek(file, 0, SEEK_END);
    assert_int_equal(cmn_checkpoint_behind(file), 0);
    fclose(file);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_come_out_as_they_went_in),
        cmocka_unit_test(equal_bytes_are_stored_once),
        cmocka_unit_test(weights_come_first),
        cmocka_unit_test(memory_that_was_used),
        cmocka_unit_test(what_a_snapshot_refuses),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(every_other_length_is_noticed),
        cmocka_unit_test(what_stands_behind_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
