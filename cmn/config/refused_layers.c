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

enum { TRAINS = CMN_USE_TRAINS };
enum tree { BOTH, PJREDDIE, OTHER /* AlexeyAB's */ };

static const struct {
    const char *section, *alias; /* two names of the section; NULL: it has one */
    const char *key;             /* NULL: the section itself is refused */
    int accepted;                /* the only value of the key that is not refused */
    enum tree tree;
    int use; /* refused only in a cfg that has all these uses */
    const char *why;
} table[] = {
    {"[rnn]", NULL, NULL, 0, BOTH, 0, state},
    {"[gru]", NULL, NULL, 0, BOTH, 0, state},
    {"[lstm]", NULL, NULL, 0, BOTH, 0, state},
    {"[crnn]", NULL, NULL, 0, BOTH, 0, state},
    {"[conv_lstm]", NULL, NULL, 0, OTHER, 0, state},
    {"[history]", NULL, NULL, 0, OTHER, 0, state},
    {"[net]", "[network]", "time_steps", 1, BOTH, 0, sequence},
    {"[net]", "[network]", "track", 0, OTHER, 0, sequence},
    {"[l2norm]", NULL, NULL, 0, PJREDDIE, 0, gradient},
    {"[normalization]", "[lrn]", NULL, 0, PJREDDIE, 0, gradient},
    {"[convolutional]", "[conv]", "binary", 0, PJREDDIE, 0, differs},
    {"[convolutional]", "[conv]", "xnor", 0, PJREDDIE, 0, differs},
    {"[net]", "[network]", "dynamic_minibatch", 0, OTHER, TRAINS,
     "a step's number of images would change, and iterations are counted by it: remove it"},
    {"[net]", "[network]", "weights_reject_freq", 0, OTHER, TRAINS,
     "it changes weights that the ranks of a node share while others read them: remove it"},
    {"[net]", "[network]", "adversarial_lr", 0, OTHER, TRAINS,
     "this Darknet knows it on GPUs alone, where each process decides by itself when to attack its "
     "images: remove it"},
    {"[net]", "[network]", "unsupervised", 0, OTHER, TRAINS,
     "this Darknet takes an address in memory as the class of an image, which differs in each "
     "process: remove it"},
    {"[convolutional]", "[conv]", "assisted_excitation", 0, OTHER, TRAINS,
     "this Darknet excites fewer images of a step on the CPU the more ranks share it, and reads "
     "boxes at wrong places: remove it"},
    {"[convolutional]", "[conv]", "share_index", -1000000000, OTHER, TRAINS,
     "this Darknet updates shared weights once for each layer that has them, and no sum over ranks "
     "equals that: use one process, without -cmn"},
    {"[net]", "[network]", "cutmix", 0, OTHER, TRAINS | CMN_USE_BOXES,
     "this Darknet mixes so the images of classifiers alone: remove it"},
#ifndef OPENCV
    {"[net]", "[network]", "mosaic", 0, OTHER, TRAINS | CMN_USE_BOXES,
     "this program was built without OpenCV, and detectors need it for that: build with OPENCV=1, "
     "or remove it"},
#endif
};

const char *cmn_refused_layer(const char *section, const char *key, const char *value, int use)
{
    const enum tree tree = cmn_cfg_has_more() ? OTHER : PJREDDIE;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int is_here = !strcmp(table[i].section, section) ||
                      (table[i].alias && !strcmp(table[i].alias, section));
        int is_it = table[i].key
                        ? !strcmp(table[i].key, key) && strtod(value, NULL) != table[i].accepted
                        : key[0] == '[';
        if (is_here && is_it && (use & table[i].use) == table[i].use &&
            (table[i].tree == BOTH || table[i].tree == tree)) {
            return table[i].why;
        }
    }
    return NULL;
}
