/* The differences of two cfgs, and of texts that are none. */
#include "check.h"

#include "checkpoint/cfg_changes.h"

static char text[300];

static int changes(const char *there, const char *here)
{
    return cmn_cfg_changes(there, here, text, sizeof text);
}

TEST(none)
{
    const char *net = "[net]\nbatch=1\nmomentum=0.9\nmax_batches=5\n[connected]\noutput=3\n";

    assert_int_equal(changes(net, net), 0);
    assert_string_equal(text, "");
    assert_int_equal(
        changes(net,
                "[net]\nmomentum=.90\nbatch=1\nmax_batches=9\ncmn_seed=3\n[connected]\noutput=3"),
        0);
    assert_int_equal(changes("", ""), 0);
}

/* Another rate may be that of another training, in the same backup folder. */
TEST(rate)
{
    assert_int_equal(changes("[net]\nlearning_rate=.1\n[x]\n", "[net]\nlearning_rate=.2\n[x]\n"),
                     1);
    assert_string_equal(text, "[net] learning_rate was .1, is .2");
    assert_int_equal(changes("[net]\n[x]\nmax_batches=1\n", "[net]\n[x]\nmax_batches=2\n"), 1);
    assert_string_equal(text, "[x] max_batches of layer 0 was 1, is 2");
}

TEST(some)
{
    assert_int_equal(
        changes("[net]\na=1\nb=x\n[c]\n[c]\nd=0\n", "[net]\na=2\n[c]\ne=nan\n[c]\nd=0\n"), 3);
    assert_string_equal(
        text,
        "[net] a was 1, is 2; [net] b was x, is not set; [c] e of layer 0 was not set, is nan");
    assert_int_equal(changes("[n]\na=1\nb=1\nc=1\nd=1\ne=1", "[n]\n"), 5);
    assert_non_null(strstr(text, "[n] c was 1, is not set; and 2 more"));
    /* Darknet takes the first line with a key. */
    assert_int_equal(changes("[n]\na=1\na=2\n", "[n]\na=1\na=3\n"), 0);
    assert_int_equal(changes("[n]\n[x]\n", "[n]\n"), 1);
    assert_string_equal(text, "[x] layer of layer 0 was there, is not set");
}

/* Anchors are longer than what is shown of them; nan is no number that another one equals. */
TEST(whole_values)
{
    static const char list[] = "10,13,16,30,33,23,30,61,62,45,59,119,116,90,156,198,373,";
    char there[200], here[200];

    snprintf(there, sizeof there, "[n]\n[yolo]\nanchors=%s%s326\n", list, list);
    snprintf(here, sizeof here, "[n]\n[yolo]\nanchors=%s%s327\n", list, list);
    assert_int_equal(changes(there, here), 1);
    check_contains(text, "[yolo] anchors of layer 0 was 10,13,");
    assert_int_equal(changes(there, there), 0);
    assert_int_equal(changes("[n]\na=nan", "[n]\na=5"), 1);
}

TEST(hostile)
{
    char small[16], longest[3000];
    const char *const texts[] = {"[",  "=",      "[]\n=\n=", "\n\n",     "a=b\n[",
                                 "[n", "[n]\na", "[n]\na=",  "[n]\n=1\n"};

    snprintf(longest, sizeof longest, "[n]\n%01490d=%01490d", 1, 1);
    for (size_t i = 0; i < COUNT(texts); i++) {
        cmn_cfg_changes(texts[i], longest, small, sizeof small);
        assert_true(strlen(small) < sizeof small);
        cmn_cfg_changes(longest, texts[i], small, sizeof small);
        cmn_cfg_changes(texts[i], texts[(i + 1) % COUNT(texts)], small, sizeof small);
        assert_int_equal(cmn_cfg_changes(texts[i], texts[i], small, sizeof small), 0);
    }
    assert_true(cmn_cfg_changes(longest, "[n]\n", small, sizeof small) > 0);
    assert_true(strlen(small) < sizeof small);
}

TESTS(NULL, NULL)
