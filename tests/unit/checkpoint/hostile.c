/* Checkpoints whose checksums are right and whose contents are not: made by someone who knows the format. */
#include "check.h"

#include "checkpoint/format.h"
#include "base/log.h"

/* A file in memory, taken apart; seal() puts it together again, with its checksums. */
static struct {
    unsigned char *bytes;
    size_t n;
    struct cmn_head head;
    struct cmn_trailer trailer;
    struct cmn_entry entry[8];
    size_t index, entries; /* where the index is, whatever the trailer says */
} file;

enum { WEIGHTS, A, B, C, ENTRIES };

static int open_file(void **state)
{
    struct cmn_snapshot *s = cmn_snapshot_new();
    const void *bytes;
    char data[300];

    (void)state;
    memset(data, 'x', sizeof data);
    fwrite(data, 1, 100, cmn_snapshot_weights(s));
    if (cmn_snapshot_add(s, "a", 0, data, 300) || cmn_snapshot_add(s, "b", 0, data, 65) ||
        cmn_snapshot_same(s, "a", 1, 0) || !(bytes = cmn_snapshot_seal(s, 5, &file.n))) {
        return -1;
    }
    file.bytes = malloc(2 * file.n);
    memcpy(file.bytes, bytes, file.n);
    cmn_snapshot_free(s);
    cmn_head_read(&file.head, file.bytes + 128);
    cmn_trailer_read(&file.trailer, file.bytes + file.n - CMN_TRAILER);
    file.entries = ENTRIES;
    file.index = (size_t)file.trailer.index;
    for (size_t i = 0; i < ENTRIES; i++) {
        cmn_entry_read(&file.entry[i], file.bytes + file.index + i * CMN_ENTRY);
    }
    return file.trailer.entries == ENTRIES ? 0 : -1;
}

static int close_file(void **state)
{
    (void)state;
    free(file.bytes);
    return 0;
}

static void seal_trailer(void)
{
    file.trailer.index_check = cmn_checksum(file.bytes + file.index, file.entries * CMN_ENTRY);
    cmn_trailer_write(&file.trailer, file.bytes + file.n - CMN_TRAILER);
    cmn_trailer_seal(file.bytes, file.n);
}

static void seal_bytes(void)
{
    cmn_head_write(&file.head, file.bytes + 128);
    seal_trailer();
}

static void seal(void)
{
    for (size_t i = 0; i < file.entries; i++) {
        struct cmn_entry *e = &file.entry[i];
        if (e->same) {
            e->check = file.entry[A].check; /* of which all those are */
        } else if (e->offset <= file.n && e->stored <= file.n - e->offset) {
            e->check = cmn_checksum(file.bytes + e->offset, (size_t)e->stored);
        }
        cmn_entry_write(e, file.bytes + file.index + i * CMN_ENTRY);
    }
    seal_bytes();
}

static struct cmn_checkpoint_file *parse(void)
{
    /* Memory of just this size: a sanitizer sees who reads on. */
    unsigned char *copy = malloc(file.n);
    struct cmn_checkpoint_file *f;

    assert_non_null(copy);
    memcpy(copy, file.bytes, file.n);
    cmn_fail("no reason was given");
    f = cmn_checkpoint_parse(copy, file.n);
    free(copy);
    return f;
}

static void refused(const char *why)
{
    struct cmn_checkpoint_file *f;

    seal();
    f = parse();
    if (f) {
        fail_msg("accepted: %s", why);
    }
    check_contains(cmn_reason(), why);
}

/* So the tests below are refused for what they change. */
static void as_it_is(void **state)
{
    struct cmn_checkpoint_file *f;

    (void)state;
    seal();
    f = parse();
    assert_non_null(f);
    cmn_checkpoint_free(f);
}

/* Near the ends of what numbers hold. */
static const uint64_t huge[] = {
    1u << 31,        UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_MAX / 2,  UINT64_MAX / 2 + 1,
    UINT64_MAX - 63, UINT64_MAX - 64,   UINT64_MAX,        UINT64_MAX / 96, UINT64_MAX / 96 + 1};

static void huge_lengths(void **state)
{
    struct cmn_entry a = file.entry[A], b = file.entry[B], w = file.entry[WEIGHTS];

    (void)state;
    for (size_t i = 0; i < COUNT(huge); i++) {
        file.entry[A].bytes = huge[i];
        refused("section a of rank 0: its lengths contradict");
        file.entry[A].lead = huge[i];
        refused("section a of rank 0: its lengths contradict");
        file.entry[A].lead = huge[i] - a.stored;
        refused("section a of rank 0: its lengths contradict");
        file.entry[A].stored = huge[i];
        refused("section a of rank 0: it lies outside");
        file.entry[A] = a;
        file.entry[B].offset = huge[i];
        refused("section b of rank 0: it lies outside");
        file.entry[B].stored = UINT64_MAX - huge[i] + 1;
        refused("section b of rank 0: it lies outside");
        file.entry[B] = b;
        file.entry[WEIGHTS].stored = file.entry[WEIGHTS].bytes = file.head.weights = huge[i];
        refused("behind the weights");
        file.entry[WEIGHTS] = w;
        file.head.weights = w.bytes;
    }
}

/* A small file asks for much memory: what is restored is bound by what is stored. */
static void much_out_of_little(void **state)
{
    struct cmn_entry a = file.entry[A];
    size_t bytes;
    struct cmn_checkpoint_file *f;

    (void)state;
    file.entry[A].lead = 65536 - 300;
    file.entry[A].bytes = file.entry[C].bytes = 65536;
    file.entry[C].lead = file.entry[A].lead;
    seal();
    f = cmn_checkpoint_parse(file.bytes, file.n);
    assert_non_null(f);
    assert_non_null(cmn_checkpoint_section(f, "a", 1, &bytes));
    assert_int_equal(bytes, 65536);
    cmn_checkpoint_free(f);
    file.entry[A].bytes = file.entry[C].bytes = 300 * 256 - 256;
    seal();
    f = cmn_checkpoint_parse(file.bytes, file.n);
    assert_non_null(f);
    cmn_checkpoint_free(f);
    file.entry[A].bytes = file.entry[C].bytes = 300 * 256;
    refused("section a of rank 0: its lengths contradict");
    file.entry[A] = a;
}

static void lengths_that_contradict_each_other(void **state)
{
    struct cmn_entry a = file.entry[A];

    (void)state;
    file.entry[A].lead = 301;
    refused("section a of rank 0: its lengths contradict");
    file.entry[A].lead = 1;
    refused("section a of rank 0: its lengths contradict");
    file.entry[A].lead = 0;
    file.entry[A].bytes = 299;
    refused("section a of rank 0: its lengths contradict");
    file.entry[A] = a;
    /* The length of the weights overflows when it is rounded up, and the head stands where that leads: at byte 0. */
    file.entry[WEIGHTS].stored = file.entry[WEIGHTS].bytes = file.head.weights = UINT64_MAX;
    seal();
    cmn_head_write(&file.head, file.bytes);
    seal_trailer();
    assert_null(parse());
    check_contains(cmn_reason(), "behind the weights");
}

static void sections_in_wrong_places(void **state)
{
    struct cmn_entry a = file.entry[A], b = file.entry[B];

    (void)state;
    file.entry[B].offset = a.offset; /* two over each other */
    refused("section b of rank 0: it lies outside");
    file.entry[B].offset = 0; /* over the weights */
    refused("section b of rank 0: it lies outside");
    file.entry[B].offset = b.offset + 64;
    refused("section b of rank 0: it lies outside");
    file.entry[B].offset = b.offset + 1;
    refused("section b of rank 0: it lies outside");
    file.entry[B] = b;
    file.entry[B].stored = file.trailer.index - b.offset + 1; /* into the index */
    file.entry[B].bytes = file.entry[B].stored;
    refused("section b of rank 0: it lies outside");
    file.entry[B] = b;
    file.entry[B].stored = file.entry[B].bytes = 64; /* something is left before the index */
    refused("between its sections and its index");
    file.entry[B] = b;
    file.entry[A].stored = file.entry[A].bytes = 0;
    refused("section b of rank 0: it lies outside");
    file.entry[A] = a;
}

static void wrong_names(void **state)
{
    struct cmn_entry a = file.entry[A], w = file.entry[WEIGHTS];

    (void)state;
    memset(file.bytes + file.index + CMN_ENTRY, 'x', CMN_SECTION_NAME); /* without an end */
    seal_bytes();
    assert_null(parse());
    check_contains(cmn_reason(), "section 1 has no proper name");
    file.entry[A] = a;
    strcpy(file.entry[A].name, "");
    refused("section 1 has no proper name");
    strcpy(file.entry[A].name, "\033[31m");
    refused("section 1 has no proper name");
    strcpy(file.entry[A].name, "a b");
    refused("section 1 has no proper name");
    file.entry[A] = a;
    file.entry[A].rank = -2;
    refused("section 1 has no proper name");
    file.entry[A].rank = INT32_MIN;
    refused("section 1 has no proper name");
    file.entry[A] = a;
    strcpy(file.entry[WEIGHTS].name, "a");
    refused("does not begin with the weights");
    file.entry[WEIGHTS] = w;
    file.entry[WEIGHTS].same = 1;
    refused("does not begin with the weights");
    file.entry[WEIGHTS] = w;
    file.entry[WEIGHTS].bytes++;
    refused("does not begin with the weights");
    file.entry[WEIGHTS] = w;
    strcpy(file.entry[B].name, "a");
    refused("section a of rank 0: it is there twice");
    strcpy(file.entry[B].name, "b");
    file.entry[C].rank = 0;
    refused("section a of rank 0: it is there twice");
}

static void wrong_references(void **state)
{
    struct cmn_entry c = file.entry[C];
    static const uint32_t wrong[] = {1, C + 1, C + 2, 1000, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        file.entry[C].same = wrong[i];
        refused("section a of rank 1: it is said to be that of no section");
    }
    file.entry[C].same = B + 1;
    refused("section a of rank 1: it differs");
    file.entry[C] = c;
    strcpy(file.entry[C].name, "b");
    refused("section b of rank 1: it differs");
    file.entry[C] = c;
    file.entry[C].bytes++;
    refused("section a of rank 1: it differs");
    file.entry[C] = c;
    file.entry[C].offset += 64;
    refused("section a of rank 1: it differs");
    file.entry[C] = c;
    file.entry[C].stored--;
    refused("section a of rank 1: it differs");
    file.entry[C] = c;
    file.entry[C].lead++;
    refused("section a of rank 1: it differs");
    file.entry[C] = c;
    /* One that refers to one that refers: chains could be circles. */
    file.entry[ENTRIES] = c;
    file.entry[ENTRIES].same = C + 1;
    file.entry[ENTRIES].rank = 2;
    memset(file.bytes + file.n - CMN_TRAILER, 0, 128);
    file.n += 128;
    file.head.bytes = file.trailer.bytes = file.n;
    file.trailer.entries = file.entries = ENTRIES + 1;
    refused("section a of rank 2: it differs");
}

static void wrong_index(void **state)
{
    struct cmn_trailer t = file.trailer;

    (void)state;
    for (size_t i = 0; i < COUNT(huge); i++) {
        file.trailer.entries = huge[i];
        refused("its index is not where");
        file.trailer.index = UINT64_MAX - 63 - huge[i] * CMN_ENTRY;
        refused("its index is not where");
        file.trailer = t;
        file.trailer.index = huge[i];
        refused("its index is not where");
        file.trailer = t;
        file.trailer.bytes = huge[i];
        refused("and should have");
        file.trailer = t;
    }
    file.trailer.entries = 0;
    refused("its index is not where");
    file.trailer.index = file.n - CMN_TRAILER; /* nothing, behind all */
    refused("its index is not where");
    file.trailer.index = file.n; /* what is left for it overflows, and so does its length */
    file.trailer.entries = (UINT64_MAX - 63) / CMN_ENTRY;
    refused("its index is not where");
    file.trailer.index = t.index;
    file.trailer.entries = ENTRIES + (UINT64_C(1) << 59); /* their length is that of ENTRIES */
    refused("its index is not where");
    file.trailer.entries = ENTRIES + 1;
    refused("its index is not where");
    file.trailer = t;
    file.trailer.index += 64;
    refused("its index is not where");
    file.trailer.index = t.index - 64;
    refused("its index is not where");
    file.trailer.index = t.index + 1;
    refused("its index is not where");
    file.trailer = t;
    file.head.bytes++;
    refused("contradicts the file");
    file.head.bytes--;
    file.head.iteration = -1;
    refused("contradicts the file");
    file.head.iteration = 5;
    file.head.weights++;
    refused("does not begin with the weights");
    file.head.weights--;
    seal();
    file.bytes[128 + 9] ^= 1;
    seal_trailer();
    assert_null(parse());
    check_contains(cmn_reason(), "what stands behind the weights is damaged");
}

static void other_versions(void **state)
{
    (void)state;
    file.trailer.version = 2;
    refused("written by a later version (2");
    file.trailer.version = UINT32_MAX;
    refused("written by a later version (4294967295");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, open_file, close_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(as_it_is),
        CASE(huge_lengths),
        CASE(much_out_of_little),
        CASE(lengths_that_contradict_each_other),
        CASE(sections_in_wrong_places),
        CASE(wrong_names),
        CASE(wrong_references),
        CASE(wrong_index),
        CASE(other_versions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
