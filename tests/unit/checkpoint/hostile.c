/* Checkpoints whose checksums are right and whose contents are not: made by someone who knows
 * the format. */
#include "check.h"

#include <malloc.h>

#include "checkpoint/reader.h"

enum { WEIGHTS = 100, TENSOR_A = 300, TENSOR_B = 65, DATA = 320 + 128 };

/* A file that is put together from its mark, its header's text and DATA bytes of tensors. */
static struct {
    struct cmn_mark mark;
    char header[1 << 20];
    size_t header_bytes; /* with blanks */
    unsigned char *bytes;
    size_t n;
} file;

static const unsigned char weights[WEIGHTS] = {1, 2, 3}, data[DATA] = {9, 9};

static const char *check_of(const void *bytes, size_t n)
{
    static char text[4][20];
    static int i;
    char *to = text[i++ % 4];

    snprintf(to, 20, "%016llx", (unsigned long long)cmn_checksum(bytes, n));
    return to;
}

/* Tensors a of all ranks and b of rank 3; each %s of the format is a checksum: of the weights,
 * a, b. */
static const char right[] =
    "{\"iteration\":5,\"written\":6,\"weights\":\"%s\",\"training\":{},\"tensors\":["
    "{\"name\":\"a\",\"bytes\":300,\"xxh3\":\"%s\"},"
    "{\"name\":\"b\",\"rank\":3,\"bytes\":65,\"xxh3\":\"%s\"}]}";

static void seal(void)
{
    size_t n = WEIGHTS + CMN_MARK + file.header_bytes + DATA;
    unsigned char mark[CMN_MARK];

    free(file.bytes);
    file.n = n;
    file.bytes = malloc(n);
    assert_non_null(file.bytes);
    file.mark.header_check = cmn_checksum(file.header, file.header_bytes);
    cmn_mark_write(&file.mark, mark);
    memcpy(file.bytes, weights, WEIGHTS);
    memcpy(file.bytes + WEIGHTS, mark, CMN_MARK);
    memcpy(file.bytes + WEIGHTS + CMN_MARK, file.header, file.header_bytes);
    memcpy(file.bytes + n - DATA, data, DATA);
}

/* A header of this text, and all else as it is to be. */
static void with_header(const char *text, size_t n)
{
    assert_true(n + CMN_ALIGN < sizeof file.header);
    memcpy(file.header, text, n);
    file.header_bytes = (WEIGHTS + CMN_MARK + n + 63) / 64 * 64 - WEIGHTS - CMN_MARK;
    memset(file.header + n, ' ', file.header_bytes - n);
    file.mark = (struct cmn_mark){.version = CMN_CHECKPOINT_VERSION,
                                  .weights = WEIGHTS,
                                  .file = WEIGHTS + CMN_MARK + file.header_bytes + DATA,
                                  .header = file.header_bytes};
    seal();
}

/* `format` as `right`, where `old` stands for `new`. */
static void with(const char *old, const char *new)
{
    char format[1024], text[1200];
    const char *at = strstr(right, old);

    assert_non_null(at);
    snprintf(format, sizeof format, "%.*s%s%s", (int)(at - right), right, new, at + strlen(old));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, check_of(weights, WEIGHTS), check_of(data, 320),
             check_of(data + 320, 128));
#pragma GCC diagnostic pop
    with_header(text, strlen(text));
}

static void refused(const char *why)
{
    cmn_fail("no reason was given");
    assert_fails(!cmn_checkpoint_parse(file.bytes, file.n), why);
}

static struct cmn_checkpoint_file *accepted(void)
{
    struct cmn_checkpoint_file *f = cmn_checkpoint_parse(file.bytes, file.n);

    assert_done(f);
    return f;
}

static void refused_with(const char *old, const char *new, const char *why)
{
    with(old, new);
    refused(why);
}

static void close_file(void)
{
    free(file.bytes);
    file.bytes = NULL;
}

/* So the tests below are refused for what they change. */
TEST(as_it_is)
{
    struct cmn_checkpoint_file *f;

    with("a", "a");
    f = accepted();
    assert_int_equal(cmn_checkpoint_tensor(f, "b", 3)->bytes, TENSOR_B);
    assert_int_equal(cmn_checkpoint_tensor(f, "a", CMN_ALL_RANKS)->bytes, TENSOR_A);
    cmn_checkpoint_free(f);
}

/* Near the ends of what numbers hold. */
static const uint64_t huge[] = {1u << 31,        UINT64_C(1) << 32,  UINT64_C(1) << 40,
                                UINT64_MAX / 2,  UINT64_MAX / 2 + 1, UINT64_MAX - 63,
                                UINT64_MAX - 64, UINT64_MAX - 127,   UINT64_MAX};

/* One number of the mark is another one. */
static void refused_number(uint64_t *number, uint64_t value, const char *why)
{
    uint64_t before = *number;

    *number = value;
    seal();
    refused(why);
    *number = before;
}

TEST(lengths_in_the_mark)
{
    static const char length[] = "its header has an impossible length",
                      checksum[] = "its header: wrong checksum";
    struct cmn_mark *m = &file.mark;
    uint64_t rest;

    with("a", "a");
    for (size_t i = 0; i < COUNT(huge); i++) {
        refused_number(&m->weights, huge[i], "no mark behind weights");
        refused_number(&m->file, huge[i], "truncated: ");
        refused_number(&m->header, huge[i], length);
        refused_number(&m->header, huge[i] / 64 * 64 - WEIGHTS % 64, length);
    }
    for (long by = -64; by <= 64; by++) {
        if (by) {
            refused_number(&m->weights, (uint64_t)(WEIGHTS + by), "no mark behind weights");
            refused_number(&m->file, (uint64_t)((long)file.n + by),
                           by > 0 ? "truncated: " : "and should have");
        }
        if (by % 64) {
            refused_number(&m->header, (uint64_t)((long)m->header + by), length);
        }
    }
    rest = file.n - WEIGHTS - CMN_MARK;
    refused_number(&m->header, rest, checksum);
    refused_number(&m->header, rest + 64, length); /* and one line more */
    refused_number(&m->header, 28, checksum);      /* to the next line */
}

/* A mark whose header begins behind the file's end, or in it. */
TEST(little_files)
{
    unsigned char bytes[2 * CMN_MARK];
    struct cmn_mark m = {.version = CMN_CHECKPOINT_VERSION};

    for (size_t n = CMN_MARK; n <= sizeof bytes; n++) {
        char *copy = malloc(n);
        memset(bytes, ' ', sizeof bytes);
        m.file = n;
        m.header = n - CMN_MARK;
        m.header_check = cmn_checksum(bytes, n - CMN_MARK);
        cmn_mark_write(&m, bytes);
        memcpy(copy, bytes, n);
        assert_fails(!cmn_checkpoint_parse(copy, n),
                     m.header % 64 ? "its header has an impossible length" : "its header: no JSON");
        free(copy);
    }
}

TEST(headers_that_are_none)
{
    static const char *const texts[] = {
        "", "{", "nonsense", "\"", "{\"iteration\":5", "[1,2", "{\"iteration\":5,}"};
    static const char *const values[] = {
        "[]", "5", "null", "\"text\"", "{}", "{\"iteration\":5}", "{\"tensors\":[]}"};
    static char deep[100000];

    for (size_t i = 0; i < COUNT(texts); i++) {
        with_header(texts[i], strlen(texts[i]));
        refused("its header: no JSON");
    }
    for (size_t i = 0; i < COUNT(values); i++) {
        with_header(values[i], strlen(values[i]));
        refused("no iteration, time or description of the training");
    }
    memset(deep, '[', sizeof deep);
    with_header(deep, 500);
    refused("too many values");
    memset(deep, '"', sizeof deep);
    with_header(deep, 1001);
    refused("its header: no JSON");
    memset(deep, '\\', sizeof deep);
    deep[0] = '"';
    with_header(deep, sizeof deep);
    refused("its header: no JSON");
}

static char text[128];

/* `old` stands for a text of this format. */
#define REFUSED_TEXT(old, why, ...)               \
    do {                                          \
        snprintf(text, sizeof text, __VA_ARGS__); \
        refused_with(old, text, why);             \
    } while (0)

TEST(wrong_values)
{
    static const char *const numbers[] = {"-1", "0.5", "1e300", "-1e300", "\"5\"", "null", "[]"};
    static const char *const checks[] = {"\"\"",
                                         "5",
                                         "null",
                                         "\"0123456789abcde\"",
                                         "\"0123456789ABCDEF\"",
                                         "\"0x23456789abcdef\"",
                                         "\" 123456789abcdef\"",
                                         "\"0123456789abcdef0\"",
                                         "\"0000000000000000\""};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        REFUSED_TEXT("\"iteration\":5", "no iteration", "\"iteration\":%s", numbers[i]);
        REFUSED_TEXT("\"written\":6", "no iteration", "\"written\":%s", numbers[i]);
        REFUSED_TEXT("\"rank\":3", "tensor b: its rank is no rank", "\"rank\":%s", numbers[i]);
        REFUSED_TEXT("\"bytes\":300", "tensor a: it has an impossible length", "\"bytes\":%s",
                     numbers[i]);
        refused_with("\"bytes\":65", text, "tensor b of rank 3: it has an impossible length");
    }
    for (size_t i = 0; i < COUNT(checks); i++) {
        /* %.0s takes its checksum, and prints nothing. */
        REFUSED_TEXT("\"xxh3\":\"%s\"},", "tensor a: wrong checksum", "\"xxh3\":%s%%.0s},",
                     checks[i]);
        REFUSED_TEXT("\"weights\":\"%s\"", "weights: wrong checksum", "\"weights\":%s%%.0s",
                     checks[i]);
    }
    refused_with("\"training\":{}", "\"training\":[]", "description of the training");
    refused_with("\"training\":{}", "\"trainings\":{}", "description of the training");
    refused_with("\"rank\":3", "\"rank\":2147483648", "tensor b: its rank is no rank");
    refused_with("\"bytes\":300", "\"byte\":300", "tensor a: it has an impossible length");
    refused_with("\"tensors\":[", "\"tensors\":5,\"x\":[", "no tensors");
    refused_with("\"tensors\":[", "\"tensors\":[5,", "a tensor without a proper name");
    refused_with("\"tensors\":[", "\"tensors\":[[],", "a tensor without a proper name");
}

TEST(wrong_names)
{
    static const char *const names[] = {"\"\"",     "\"a b\"", "\"\\u001b[31m\"",
                                        "\"\x80\"", "5",       "null"};
    char long_name[100];

    for (size_t i = 0; i < COUNT(names); i++) {
        REFUSED_TEXT("\"name\":\"a\"", "a tensor without a proper name", "\"name\":%s", names[i]);
    }
    memset(long_name, 'x', sizeof long_name);
    memcpy(long_name, "\"name\":\"", 8);
    memcpy(long_name + 8 + 48, "\"", 2); /* 48 characters */
    refused_with("\"name\":\"a\"", long_name, "a tensor without a proper name");
    refused_with("\"name\":\"b\",\"rank\":3", "\"name\":\"a\"", "tensor a: it is there twice");
}

/* Where tensors lie follows from their lengths, so two cannot lie over each other. */
TEST(lengths_of_tensors)
{
    for (size_t i = 0; i < COUNT(huge); i++) {
        REFUSED_TEXT("\"bytes\":300", "tensor a: it has an impossible length", "\"bytes\":%llu",
                     (unsigned long long)huge[i]);
        refused_with("\"bytes\":65", text, "tensor b of rank 3: it has an impossible length");
    }
    refused_with("\"bytes\":300", "\"bytes\":449", "tensor a: it has an impossible length");
    refused_with("\"bytes\":300", "\"bytes\":321", "tensor a: wrong checksum");
    refused_with("\"bytes\":300", "\"bytes\":256", "tensor a: wrong checksum");
    refused_with("\"bytes\":65", "\"bytes\":129", "tensor b of rank 3: it has an impossible");
    refused_with("\"bytes\":65", "\"bytes\":0", "tensor b of rank 3: wrong checksum");
    refused_with("]}", ",{\"name\":\"c\",\"bytes\":1,\"xxh3\":\"0\"}]}",
                 "tensor c: it has an impossible length");
    with(",{\"name\":\"b\",\"rank\":3,\"bytes\":65,\"xxh3\":\"%s\"}", "");
    refused("128 bytes too many behind its last tensor");
}

#define OUTSIDE "tensor c: it is not within the weights"

/* A tensor of the weights lies within them, and belongs to all ranks. */
TEST(places_in_the_weights)
{
    static const char *const places[] = {"-4",   "1",     "2",   "0.5",  "104",   "1e300",
                                         "null", "\"4\"", "[4]", "true", "-1e300"};
    struct cmn_checkpoint_file *f;

    with("]}", ",{\"name\":\"c\",\"bytes\":8,\"at\":92},{\"name\":\"d\",\"bytes\":100,\"at\":0}]}");
    f = accepted();
    assert_memory_equal(cmn_checkpoint_tensor(f, "c", CMN_ALL_RANKS)->data, weights + 92, 8);
    assert_int_equal(cmn_checkpoint_tensor(f, "c", CMN_ALL_RANKS)->bytes, 8);
    assert_ptr_equal(cmn_checkpoint_tensor(f, "d", CMN_ALL_RANKS)->data, file.bytes);
    assert_int_equal(cmn_checkpoint_tensor(f, "d", CMN_ALL_RANKS)->bytes, WEIGHTS);
    cmn_checkpoint_free(f);
    for (size_t i = 0; i < COUNT(places); i++) {
        REFUSED_TEXT("]}", OUTSIDE, ",{\"name\":\"c\",\"bytes\":4,\"at\":%s}]}", places[i]);
    }
    for (size_t i = 0; i < COUNT(huge); i++) {
        REFUSED_TEXT("]}", OUTSIDE, ",{\"name\":\"c\",\"bytes\":4,\"at\":%llu}]}",
                     (unsigned long long)huge[i]);
        REFUSED_TEXT("]}", i < 3 ? OUTSIDE : "it has an impossible length",
                     ",{\"name\":\"c\",\"bytes\":%llu,\"at\":4}]}", (unsigned long long)huge[i]);
    }
    refused_with("]}", ",{\"name\":\"c\",\"bytes\":9,\"at\":92}]}", OUTSIDE);
    refused_with("]}", ",{\"name\":\"c\",\"bytes\":101,\"at\":0}]}", OUTSIDE);
    refused_with("]}", ",{\"name\":\"c\",\"rank\":0,\"bytes\":4,\"at\":0}]}",
                 "tensor c of rank 0: it is not within the weights");
    refused_with("]}", ",{\"name\":\"a\",\"bytes\":4,\"at\":0}]}", "tensor a: it is there twice");
    refused_with("\"name\":\"b\",\"rank\":3,\"bytes\":65", "\"name\":\"b\",\"bytes\":64,\"at\":0",
                 "128 bytes too many behind its last tensor");
}

static void fill_header(const char *unit)
{
    static char list[600000];
    size_t n = (size_t)sprintf(list, "[");

    while (n + 20 < sizeof list) {
        n += (size_t)sprintf(list + n, "%s", unit);
    }
    list[n - 1] = ']';
    with_header(list, n);
}

/* What a header makes the reader take is bound by its length. */
TEST(much_out_of_little)
{
    static const char *const units[] = {"[],", "0,", "{},", "\"\",", "[[]],", "{\"\":0},"};
    size_t before, used;

    for (size_t i = 0; i < COUNT(units); i++) {
        fill_header(units[i]);
        before = mallinfo2().uordblks;
        refused("too many values for its length");
        used = mallinfo2().uordblks - before;
        assert_true(used < 10000);
    }
    /* As many as may be: each with a long number. */
    fill_header("12345678,");
    refused("no iteration");
}

TEST(other_versions)
{
    with("a", "a");
    file.mark.version = 2;
    seal();
    refused("its format is version 2, and this program reads version 3: only its weights can be "
            "used, as a weights file");
    file.mark.version = UINT32_MAX;
    file.mark.file = 3; /* whatever else it says */
    seal();
    refused("its format is version 4294967295, and this program reads version 3");
    /* Version 1 has zeros between weights and mark. */
    file.mark.version = 1;
    file.mark.weights = WEIGHTS - 63;
    seal();
    refused("its format is version 1, and this program reads version 3");
}

TESTS(NULL, close_file)
