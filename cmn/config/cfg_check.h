/* cfg_check: what is wrong with a cfg and a .data file, before Darknet reads them. Local.
 *
 * A training, an evaluation and `darknet cmn doctor` call the same check; without -cmn Darknet reads
 * its files by itself. Lines, numbers and words are checked first, then the shapes of the layers, one
 * after the other, and what has to fit: filters before [yolo], anchors, masks, the layers that
 * [route] and [shortcut] name, batch and subdivisions, classes, and the command. */
#ifndef CMN_CFG_CHECK_H
#define CMN_CFG_CHECK_H

#include "config/cfg_file.h"
#include "config/commands.h"

/* The sides of an input, in pixels, that pjreddie's Darknet draws with random=1, in steps of 32. */
enum {
    CMN_SMALLEST_CLASSIFIER = 128,
    CMN_LARGEST_CLASSIFIER = 448,
    CMN_SMALLEST_DETECTOR = 320,
    CMN_LARGEST_DETECTOR = 608
};

enum cmn_cfg_fault {
    CMN_CFG_BAD_LINE,
    CMN_CFG_BAD_NUMBER,
    CMN_CFG_BAD_WORD,
    CMN_CFG_REFUSED,   /* a layer or key that -cmn does not train with */
    CMN_CFG_BAD_LAYER, /* layers, or numbers of [net], that do not fit each other */
    CMN_CFG_BAD_FILTERS,
    CMN_CFG_BAD_ANCHORS,
    CMN_CFG_BAD_CLASSES,
    /* From here on they are no faults: Darknet trains, but not as the file says. */
    CMN_CFG_UNUSED_KEY,
    CMN_CFG_FOREIGN_KEY, /* a key that only AlexeyAB's Darknet has */
    CMN_CFG_ADVICE
};

/* Whom the check tells of each fault. `text` names file, line, key and value, and says what to do;
 * it is gone after the call. `line` is that of the file. */
struct cmn_cfg_listener {
    void (*tell)(void *to, enum cmn_cfg_fault fault, int line, const char *text);
    void *to;
};

/* Checks a .data file. */
void cmn_data_check(const char *name, const struct cmn_cfg_file *data,
                    const struct cmn_cfg_listener *listener);

/* Checks a cfg. `data` may be NULL: then nothing is compared with it. */
struct cmn_cfg_question {
    const char *name, *data_name;
    const struct cmn_cfg_file *cfg, *data;
    const char *driver;     /* of the command that trains it, "detector"; NULL: not known */
    enum cmn_answer answer; /* what the network is to find */
    int trains;
};
void cmn_cfg_check(const struct cmn_cfg_question *q, const struct cmn_cfg_listener *listener);

#endif
