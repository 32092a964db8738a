/* The command line of `darknet cmn bench`. */
#include "check.h"

#include "base/log.h"
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
    assert_fatal(read_line(line), why);
    assert_fatal(read_line(line), "darknet cmn bench: ");
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

TEST(bad_sizes)
{
    char many[512] = "-sizes 4";

    refused("-sizes", "-sizes: the value is missing");
    refused("-sizes ", "nothing before or after a comma");
    refused("-sizes ,", "comma");
    refused("-sizes 1K,", "comma");
    refused("-sizes 1K,,2K", "comma");
    refused("-sizes 4X", "4X is no size");
    refused("-sizes 1KK", "1KK is no size");
    refused("-sizes -4", "-4 is no size");
    refused("-sizes K", "K is no size");
    refused("-sizes 1.5K", "1.5K is no size");
    refused("-sizes 0", "0 is no size");
    refused("-sizes 3", "3 is no size: write bytes, or a number with K, M or G, from 4 to 4G");
    refused("-sizes 5G", "5G is no size");
    refused("-sizes 4294967297", "4294967297 is no size");
    refused("-sizes 99999999999999999G", "is no size"); /* shifted it would be small */
    refused("-sizes 18446744073709551617", "is no size");
    for (int i = 0; i < CMN_BENCH_SIZES; i++) {
        strncat(many, ",4", sizeof many - strlen(many) - 1);
    }
    refused(many, "more than 32 sizes");
}

TEST(bad_names)
{
    refused("-communicators flatt", "unknown communicator flatt: did you mean flat?");
    refused("-communicators xyzzyplughplover", "known are those of `darknet cmn list`");
    refused("-communicators flat,naive,flat", "flat is named twice");
    refused("-communicators", "the value is missing");
    refused("-communicators flat,", "comma");
}

TEST(bad_iterations)
{
    static const char *const values[] = {
        "0", "-1", "x", "1.5", "", "100001", "99999999999999999999"};
    char line[64];

    for (size_t i = 0; i < COUNT(values); i++) {
        snprintf(line, sizeof line, "-iters %s", values[i]);
        refused(line, "must be a whole number, 1 to 100000");
    }
    refused("-iters", "the value is missing");
}

TEST(unknown_words)
{
    refused("-size 4", "unknown argument -size: did you mean -sizes?");
    refused("-iter 4", "did you mean -iters?");
    refused("-json", "unknown argument -json");
    refused("plan9plan9", "known are: -sizes, -communicators, -iters, -cmn_KEY");
}

TESTS(NULL, NULL)
