#include "threads.h"

TEST(reason_is_noted)
{
    assert_int_equal(cmn_fail("bucket %d of %s", 3, "net"), -1);
    assert_string_equal(cmn_reason(), "bucket 3 of net");
    assert_int_equal(cmn_fail_in("flat"), -1);
    assert_string_equal(cmn_reason(), "flat: bucket 3 of net");
    assert_int_equal(cmn_fail_in("layer %d", 7), -1);
    assert_string_equal(cmn_reason(), "layer 7: flat: bucket 3 of net");
}

TEST(long_reason_is_cut)
{
    char text[8000] = {[0 ... 7998] = 'x'};

    cmn_fail("%s", text);
    assert_true(strlen(cmn_reason()) > 100);
    assert_true(strlen(cmn_reason()) < sizeof text - 1);
    cmn_fail_in("%s", text);
    assert_true(strlen(cmn_reason()) > 100);
}

static int had_reason;

static void fail_elsewhere(int thread)
{
    had_reason = cmn_reason() != NULL; /* also where nothing was noted */
    cmn_fail("of thread %d", thread);
}

TEST(reason_belongs_to_thread)
{
    cmn_fail("of this thread");
    in_threads(1, fail_elsewhere);
    assert_true(had_reason);
    assert_string_equal(cmn_reason(), "of this thread");
}

TEST(prefix_names_rank_and_host)
{
    char text[128], small[8];

    cmn_log_prefix(text, sizeof text);
    assert_string_equal(text, "cmn: ");
    cmn_log_identity(3, "host2");
    cmn_log_prefix(text, sizeof text);
    assert_string_equal(text, "cmn[rank 3@host2] ");
    cmn_log_prefix(small, sizeof small);
    assert_true(strlen(small) < sizeof small);
}

TEST(nearest_word)
{
    static const char *const words[] = {"cmn_communicator", "cmn_batch", "cmn_seed", "cmn_verify"};
    const int n = COUNT(words);
    char longer[5000] = {[0 ... 4998] = 'c'};

    assert_string_equal(cmn_nearest("cmn_comunicator", words, n), "cmn_communicator");
    assert_string_equal(cmn_nearest("cmn_bacth", words, n), "cmn_batch");
    assert_string_equal(cmn_nearest("cmn_sed", words, n), "cmn_seed");
    assert_string_equal(cmn_nearest("cmn_verfy", words, n), "cmn_verify");
    assert_string_equal(cmn_nearest("cmn_seed", words, n), "cmn_seed");
    assert_null(cmn_nearest("xyzzyplughplover", words, n));
    assert_null(cmn_nearest("cmn_patience", words, n)); /* half of it is cmn_batch's */
    assert_string_equal(cmn_nearest("trian", (const char *const[]){"run", "train"}, 2), "train");
    assert_null(cmn_nearest("lion", (const char *const[]){"train", "link"}, 2));
    assert_null(cmn_nearest("cmn_seed", words, 0));
    (void)cmn_nearest(longer, words, n); /* must only come back */
    assert_null(cmn_nearest("", words, n));
}

TEST(what_is_printed_does_not_control_a_terminal)
{
    static const struct {
        const char *text, *printed;
    } texts[] = {
        {"plain, ~", "plain, ~"},
        {"\x1b[2J\r\n\t\x7f\x01", "?[2J?????"},
        {"\x9b"
         "2J\x80\x9f\xff",
         "?2J???"}, /* bytes that are no UTF-8 */
        {"\xc2\x9b"
         "2J \xc2\x80\xc2\x9f",
         "??2J ????"},                                             /* C1 in UTF-8 */
        {"\xc0\x9b \xe0\x82\x9b \xf0\x80\x82\x9b", "?? ??? ????"}, /* longer than needed */
        {"\xc2\xa0 \xc3\xa4 \xe2\x82\xac \xe0\xa4\x85 \xf0\x9f\x90\x88",
         "\xc2\xa0 \xc3\xa4 \xe2\x82\xac \xe0\xa4\x85 \xf0\x9f\x90\x88"},
        {"\xe2\x82", "??"}, /* cut */
    };
    char text[64];

    for (size_t i = 0; i < COUNT(texts); i++) {
        snprintf(text, sizeof text, "%s", texts[i].text);
        assert_string_equal(cmn_printable(text), texts[i].printed);
    }
    assert_string_equal(fatal_of(cmn_fatal("no \x1b]0;x\xc2\x9b file")), "no ?]0;x?? file");
}

/* What warns is an event for cmn-run, too, and what only tells is none; other ranks than 0 say nothing. */
TEST(warnings_are_events)
{
    static const char wanted[] =
        "cmn: told\ncmn: warned\ncmn-event:7 {\"kind\":\"warning\",\"rank\":0,\"host\":\"host2\",";
    const char *text;

    setenv("OMPI_CMN_EVENT_TOKEN", "7", 1);
    check_listen();
    for (int rank = 1; rank >= 0; rank--) {
        cmn_log_identity(rank, "host2");
        cmn_tell(rank ? "not told" : "told");
        cmn_warn(rank ? "not warned" : "warned");
    }
    text = check_said();
    unsetenv("OMPI_CMN_EVENT_TOKEN");
    assert_memory_equal(text, wanted, sizeof wanted - 1);
    check_contains(text, ",\"text\":\"warned\"}\n");
    assert_null(strstr(strstr(text, "cmn-event:") + 1, "cmn-event:"));
}

TESTS(NULL, NULL)
