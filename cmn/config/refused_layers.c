#include "config/refused_layers.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config/cfg_keys.h"

#define INSTEAD "remove it, or use one process, without -cmn"

static const char state[] =
    "-cmn trains no layer that keeps a state between steps; use one process, without -cmn";
static const char sequence[] =
    "-cmn trains no sequences, which only layers with a state need; " INSTEAD;
static const char gradient[] = "this Darknet's gradient of it is wrong; " INSTEAD;
static const char differs[] =
    "this Darknet computes it in different ways on the CPU and on GPUs; " INSTEAD;

enum tree { BOTH, PJREDDIE, OTHER /* AlexeyAB's */ };

static const struct {
    const char *section, *alias; /* two names of the section; NULL: it has one */
    const char *key;             /* NULL: the section itself is refused */
    int accepted;                /* the only value of the key that is not refused */
    enum tree tree;
    const char *why;
} table[] = {
    {"[rnn]", NULL, NULL, 0, BOTH, state},
    {"[gru]", NULL, NULL, 0, BOTH, state},
    {"[lstm]", NULL, NULL, 0, BOTH, state},
    {"[crnn]", NULL, NULL, 0, BOTH, state},
    {"[conv_lstm]", NULL, NULL, 0, OTHER, state},
    {"[history]", NULL, NULL, 0, OTHER, state},
    {"[net]", "[network]", "time_steps", 1, BOTH, sequence},
    {"[net]", "[network]", "track", 0, OTHER, sequence},
    {"[l2norm]", NULL, NULL, 0, PJREDDIE, gradient},
    {"[normalization]", "[lrn]", NULL, 0, PJREDDIE, gradient},
    {"[convolutional]", "[conv]", "binary", 0, PJREDDIE, differs},
    {"[convolutional]", "[conv]", "xnor", 0, PJREDDIE, differs},
};

const char *cmn_refused_layer(const char *section, const char *key, const char *value)
{
    const enum tree tree = cmn_cfg_keys_has_more() ? OTHER : PJREDDIE;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int is_here = !strcmp(table[i].section, section) ||
                      (table[i].alias && !strcmp(table[i].alias, section));
        int is_it = table[i].key ? !strcmp(table[i].key, key) && atoi(value) != table[i].accepted
                                 : key[0] == '[';
        if (is_here && is_it && (table[i].tree == BOTH || table[i].tree == tree)) {
            return table[i].why;
        }
    }
    return NULL;
}
