/* The command line of `darknet cmn bench`. */
#include "check.h"

#include "tools/bench.h"

static struct cmn_bench b;
static struct cmn_session session;

/* Reads a command line, words between blanks. */
static void read_line(const char *line)
{
    static char text[512];
    char *words[64] = {"bench"}, *rest = text, *word;
    int n = 1;

    memset(&b, 0, sizeof b);
    cmn_options_default(&session.options);
    b.session = &session;
    snprintf(text, sizeof text, "%s", line);
    while (n < 64 && (word = strsep(&rest, " "))) {
        words[n++] = word;
    }
    cmn_bench_arguments(&b, line[0] ? n : 1, words);
}

static void refused(const char *line, const char *why)
{
    assert_fatal(read_line(line), "darknet cmn bench: ");
    check_contains(check_message, why);
}

TEST(defaults)
{
    int communicators = 0;

    while (cmn_communicator_at(communicators)) {
        communicators++;
    }
    read_line("");
    assert_int_equal(b.sizes, 9);
    assert_int_equal(b.size[0], 256);
    assert_int_equal(b.size[8], 16 << 20);
    assert_int_equal(b.iterations, 0);
    assert_int_equal(b.named, 0);
    assert_int_equal(b.names, communicators + 2);
    assert_string_equal(b.name[0], CMN_RAW);
    assert_string_equal(b.name[b.names - 1], CMN_MEMORY);
}

TEST(everything_given)
{
    read_line("-iters 7 -communicators flat,MPI_Allreduce,(memory) -sizes "
              "4,7,2k,3K,5m,1M,2g,4G");
    assert_int_equal(b.iterations, 7);
    assert_int_equal(b.named, 1);
    assert_int_equal(b.names, 3);
    assert_string_equal(b.name[0], "flat");
    assert_string_equal(b.name[1], CMN_RAW);
    assert_string_equal(b.name[2], CMN_MEMORY);
    static const size_t floats[] = {1, 1, 512, 768, 5 << 18, 1 << 18, 1 << 29, 1 << 30};
    assert_int_equal(b.sizes, COUNT(floats));
    for (int i = 0; i < b.sizes; i++) {
        assert_int_equal(b.size[i], floats[i]);
    }
}

static const struct {
    const char *line, *why;
} bad[] = {
    {"-sizes", "-sizes: the value is missing"},
    {"-sizes ", "nothing before or after a comma"},
    {"-sizes ,", "comma"},
    {"-sizes 1K,", "comma"},
    {"-sizes 1K,,2K", "comma"},
    {"-sizes 4X", "4X is no size"},
    {"-sizes 1KK", "1KK is no size"},
    {"-sizes -4", "-4 is no size"},
    {"-sizes K", "K is no size"},
    {"-sizes 1.5K", "1.5K is no size"},
    {"-sizes 0", "0 is no size"},
    {"-sizes 3", "3 is no size: write bytes, or a number with K, M or G, from 4 to 4G"},
    {"-sizes 5G", "5G is no size"},
    {"-sizes 4294967297", "4294967297 is no size"},
    {"-sizes 99999999999999999G", "is no size"}, /* shifted it would be small */
    {"-sizes 18446744073709551617", "is no size"},
    {"-communicators flatt", "unknown communicator flatt: did you mean flat?"},
    {"-communicators xyzzyplughplover", "known are those of `darknet cmn list`"},
    {"-communicators flat,naive,flat", "flat is named twice"},
    {"-communicators", "the value is missing"},
    {"-communicators flat,", "comma"},
    {"-size 4", "unknown argument -size: did you mean -sizes?"},
    {"-iter 4", "did you mean -iters?"},
    {"-json", "unknown argument -json"},
    {"plan9plan9", "known are: -sizes, -communicators, -iters, -cmn_KEY"},
    {"-iters", "the value is missing"},
    {"-iters 0", "must be a whole number, 1 to 100000"},
    {"-iters -1", "must be a whole number, 1 to 100000"},
    {"-iters x", "must be a whole number, 1 to 100000"},
    {"-iters 1.5", "must be a whole number, 1 to 100000"},
    {"-iters ", "must be a whole number, 1 to 100000"},
    {"-iters 100001", "must be a whole number, 1 to 100000"},
    {"-iters 99999999999999999999", "must be a whole number, 1 to 100000"},
};

TEST(bad_lines)
{
    char many[512] = "-sizes 4";

    for (size_t i = 0; i < COUNT(bad); i++) {
        refused(bad[i].line, bad[i].why);
    }
    for (int i = 0; i < CMN_BENCH_SIZES; i++) {
        strcat(many, ",4");
    }
    refused(many, "more than 32 sizes");
}

TESTS(NULL, NULL)
