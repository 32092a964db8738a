/* cfg_fault: what the check of a cfg asks and tells (config/cfg_check.h). Local. */
#ifndef CMN_CFG_FAULT_H
#define CMN_CFG_FAULT_H

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

/* Tells the listener of a fault: "FILE:LINE: " and the text, or "FILE: " for line 0. */
void cmn_cfg_say(const struct cmn_cfg_listener *listener, enum cmn_cfg_fault fault,
                 const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A cfg to be checked. `data` may be NULL: then nothing is compared with it. */
struct cmn_cfg_question {
    const char *name, *data_name;
    const struct cmn_cfg_file *cfg, *data;
    const char *driver;     /* of the command that trains it, "detector"; NULL: not known */
    enum cmn_answer answer; /* what the network is to find */
    int trains;
    int epochs; /* cmn_epochs says when the training ends */
};

#endif
