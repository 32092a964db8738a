/* The layers and keys that -cmn refuses, in each tree of Darknet. */
#include "check.h"

#include "config/cfg_keys.h"
#include "config/refused_layers.h"

/* A section and key with its value, what the network is used for, and whether each tree refuses it.
 * */
static const struct {
    const char *section, *key, *value;
    int use, by_pjreddie, by_alexeyab;
} rows[] = {
    {"[rnn]", "[rnn]", "", 0, 1, 1},
    {"[gru]", "[gru]", "", 0, 1, 1},
    {"[lstm]", "[lstm]", "", 0, 1, 1},
    {"[crnn]", "[crnn]", "", 0, 1, 1},
    {"[l2norm]", "[l2norm]", "", 0, 1, 0},
    {"[normalization]", "[normalization]", "", 0, 1, 0},
    {"[lrn]", "[lrn]", "", 0, 1, 0},
    {"[history]", "[history]", "", 0, 0, 1},
    {"[conv_lstm]", "[conv_lstm]", "", 0, 0, 1},
    {"[net]", "[net]", "", 0, 0, 0},
    {"[convolutional]", "[convolutional]", "", 0, 0, 0},
    {"[batchnorm]", "[batchnorm]", "", 0, 0, 0},
    {"[convolutional]", "binary", "1", 0, 1, 0},
    {"[conv]", "xnor", "1", 0, 1, 0},
    {"[conv]", "xnor", "0", 0, 0, 0},
    {"[connected]", "xnor", "1", 0, 0, 0},
    {"[net]", "time_steps", "2", 0, 1, 1},
    {"[network]", "time_steps", "3", 0, 1, 1},
    {"[network]", "time_steps", "1", 0, 0, 0},
    {"[net]", "track", "1", 0, 0, 1},
    {"[net]", "adversarial_lr", "0.5", CMN_USE_BOXES, 0, 0},
    {"[net]", "adversarial_lr", "0.5", CMN_USE_TRAINS, 0, 1},
    {"[net]", "adversarial_lr", "0.0", CMN_USE_TRAINS, 0, 0},
    {"[conv]", "share_index", "0", CMN_USE_TRAINS, 0, 1},
    {"[net]", "unsupervised", "1", CMN_USE_TRAINS, 0, 1},
    {"[net]", "unsupervised", "0", CMN_USE_TRAINS, 0, 0},
    {"[convolutional]", "assisted_excitation", "1", CMN_USE_TRAINS, 0, 1},
    {"[net]", "cutmix", "1", CMN_USE_TRAINS, 0, 0},
    {"[net]", "cutmix", "1", CMN_USE_TRAINS | CMN_USE_BOXES, 0, 1},
};

TEST(what_each_tree_refuses)
{
    for (int alexeyab = 0; alexeyab < 2; alexeyab++) {
        for (size_t i = 0; i < COUNT(rows); i++) {
            const char *why =
                cmn_refused_layer(rows[i].section, rows[i].key, rows[i].value, rows[i].use);
            if ((why != NULL) != (alexeyab ? rows[i].by_alexeyab : rows[i].by_pjreddie)) {
                fail_msg("row %zu, AlexeyAB %d: %s", i, alexeyab, why ? why : "accepted");
            }
        }
        cmn_cfg_declare_more();
    }
    assert_string_equal(cmn_refused_layer("[rnn]", "[rnn]", "", 0),
                        "-cmn trains no layer that keeps a state between steps; use one process, "
                        "without -cmn");
}

TESTS(NULL, NULL)
