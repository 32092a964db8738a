/* The table of pairs: each row can hold, is refused with its own words, and holds for no training that
 * has only one of the two. */
#include "check.h"

#include "config/pairs.h"

/* Sets the key of a condition to a value with which the condition holds. */
static void make_hold(struct cmn_options *o, const char *condition)
{
    static const char *const numbers[] = {"0.5", "2"};
    size_t length = strcspn(condition, "!=");
    struct cmn_option_row row;
    char range[512], key[64], *word, *rest = range;
    int known = 0;

    snprintf(key, sizeof key, "%.*s", (int)length, condition);
    for (int i = 0; i < cmn_options_count() && !known; i++) {
        cmn_options_row(i, &row);
        known = !strcmp(row.key, key);
    }
    if (!known) {
        fail_msg("%s: no such key", condition);
    }
    snprintf(range, sizeof range, "%s", row.range);
    while ((word = strsep(&rest, ", "))) {
        word[strcspn(word, "[")] = '\0'; /* of powersgd[:1-64] */
        if (*word && !cmn_options_set(o, key, word, 0) && cmn_options_holds(o, condition)) {
            return;
        }
    }
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (!cmn_options_set(o, key, numbers[i], 0) && cmn_options_holds(o, condition)) {
            return;
        }
    }
    fail_msg("%s: no value makes it hold", condition);
}

static int check_other(struct cmn_options *o, const struct cmn_pair *p)
{
    if (p->other) {
        make_hold(o, p->other);
        return cmn_pairs_check(o);
    }
    return cmn_pairs_check_trait(o, p->trait, "what the network has");
}

TEST(each_row_is_refused_and_one_side_of_it_accepted)
{
    const struct cmn_pair *p;

    for (int i = 0; (p = cmn_pairs_at(i)); i++) {
        struct cmn_options o;
        cmn_options_default(&o);
        assert_int_equal(check_other(&o, p), 0);
        cmn_options_default(&o);
        make_hold(&o, p->feature);
        assert_int_equal(cmn_pairs_check(&o), 0);
        assert_fails(check_other(&o, p) == -1, p->why);
        check_contains(cmn_reason(), p->instead);
        check_contains(cmn_reason(), p->other ? " does not go with cmn_"
                                              : " does not go with what the network has: ");
    }
    assert_non_null(cmn_pairs_at(0));
}

TEST(message)
{
    struct cmn_options o;

    cmn_options_default(&o);
    assert_int_equal(cmn_options_set(&o, "cmn_lars", "0.01", 0), 0);
    assert_int_equal(cmn_pairs_check_trait(&o, CMN_USES_ADAM, "adam=1 in the cfg"), -1);
    assert_string_equal(cmn_reason(),
                        "cmn_lars=0.01 does not go with adam=1 in the cfg: Adam has a learning "
                        "rate for each weight: remove one of them");
    assert_int_equal(cmn_options_set(&o, "cmn_local_steps", "4", 0), 0);
    assert_int_equal(cmn_pairs_check(&o), -1);
    assert_string_equal(cmn_reason(),
                        "cmn_lars=0.01 does not go with cmn_local_steps=4: each rank updates by "
                        "itself: remove one of them");
}

TESTS(NULL, NULL)
