/* A rank whose job has a diagnosis by another rank's watchdog: what its own one does. */
#include "check.h"

#include "watchdog/node_status.h"

static int told, stacks, ends;

static void tell(struct cmn_node_status *node)
{
    (void)node;
    told++;
}

static void write_text(const char *text, size_t bytes)
{
    assert_int_equal(strlen(text), bytes);
    check_contains(text, "stack of the main thread, in: ");
    stacks++;
}

#define cmn_node_status_tell tell
#define cmn_job_stderr_write write_text
#include "watchdog/watchdog.c"

static void end(const char *why, void (*tell_first)(void))
{
    assert_true(!why && !tell_first);
    ends++;
}

/* It passes that on to its node and writes its stack, once, and ends by itself when nobody has ended
 * it. */
TEST(another_one_has_diagnosed)
{
    long most = END_MYSELF_MS + 1000 * cmn_launcher_notices();

    dog.plan.end = end;
    for (long ms = LOOK_MS; ms <= most; ms += LOOK_MS) {
        attend_end(LOOK_MS);
        assert_int_equal(told, 1);
        assert_int_equal(stacks, 1);
        assert_int_equal(ends, 0);
    }
    attend_end(LOOK_MS);
    assert_int_equal(told, 1);
    assert_int_equal(ends, 1);
}

TESTS(NULL, NULL)
