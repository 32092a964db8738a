/* The layers and keys that -cmn refuses, in each tree of Darknet. */
#include "check.h"

#include <string.h>

#include "config/cfg_keys.h"
#include "config/refused_layers.h"

static const char *section(const char *name)
{
    return cmn_refused_layer(name, name, "", 0);
}

TEST(pjreddie)
{
    static const char *const refused[] = {"[rnn]",    "[gru]",           "[lstm]", "[crnn]",
                                          "[l2norm]", "[normalization]", "[lrn]"};
    static const char *const accepted[] = {"[net]", "[convolutional]", "[batchnorm]", "[history]"};

    for (size_t i = 0; i < COUNT(refused); i++) {
        assert_non_null(section(refused[i]));
    }
    for (size_t i = 0; i < COUNT(accepted); i++) {
        assert_null(section(accepted[i]));
    }
    assert_non_null(cmn_refused_layer("[convolutional]", "binary", "1", 0));
    assert_non_null(cmn_refused_layer("[conv]", "xnor", "1", 0));
    assert_null(cmn_refused_layer("[conv]", "xnor", "0", 0));
    assert_null(cmn_refused_layer("[connected]", "xnor", "1", 0));
    assert_non_null(cmn_refused_layer("[net]", "time_steps", "2", 0));
    assert_null(cmn_refused_layer("[network]", "time_steps", "1", 0));
    assert_null(cmn_refused_layer("[net]", "track", "1", 0));
}

/* The tree stays AlexeyAB's: this test is the last one. */
TEST(alexeyab)
{
    static const char *const refused[] = {"[rnn]",  "[gru]",       "[lstm]",
                                          "[crnn]", "[conv_lstm]", "[history]"};
    static const char *const accepted[] = {"[l2norm]", "[normalization]", "[lrn]"};

    cmn_cfg_keys_none_elsewhere();
    for (size_t i = 0; i < COUNT(refused); i++) {
        assert_string_equal(section(refused[i]),
                            "-cmn trains no layer that keeps a state between steps; use one "
                            "process, without -cmn");
    }
    for (size_t i = 0; i < COUNT(accepted); i++) {
        assert_null(section(accepted[i]));
    }
    assert_null(cmn_refused_layer("[convolutional]", "xnor", "1", 0));
    assert_non_null(cmn_refused_layer("[net]", "track", "1", 0));
    assert_non_null(cmn_refused_layer("[network]", "time_steps", "3", 0));
    assert_null(cmn_refused_layer("[net]", "adversarial_lr", "0.5", CMN_USE_BOXES));
    assert_non_null(cmn_refused_layer("[net]", "adversarial_lr", "0.5", CMN_USE_TRAINS));
    assert_null(cmn_refused_layer("[net]", "adversarial_lr", "0.0", CMN_USE_TRAINS));
    assert_non_null(cmn_refused_layer("[conv]", "share_index", "0", CMN_USE_TRAINS));
    assert_null(cmn_refused_layer("[net]", "cutmix", "1", CMN_USE_TRAINS));
    assert_non_null(cmn_refused_layer("[net]", "cutmix", "1", CMN_USE_TRAINS | CMN_USE_BOXES));
}

TESTS(NULL, NULL)
