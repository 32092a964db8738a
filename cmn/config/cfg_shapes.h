/* cfg_shapes: the shapes of the layers of a cfg, as Darknet computes them, and whether they fit. It
 * is a part of cfg_check. Local. */
#ifndef CMN_CFG_SHAPES_H
#define CMN_CFG_SHAPES_H

#include "config/cfg_fault.h"

/* Output of a layer: an image of w x h pixels and c channels, all 0 if it is none, in `values`
 * numbers. Numbers are doubles, since products of a cfg's numbers may be large. After a layer of
 * which only Darknet knows the shape, `known` is 0, and what depends on it is not checked. */
struct cmn_cfg_shape {
    double w, h, c, values;
    int known;
};

struct cmn_cfg_walk {
    const struct cmn_cfg_question *q;
    const struct cmn_cfg_listener *listener;
    int section;                     /* the one that is looked at */
    const struct cmn_cfg_line *head; /* its "[type]" line */
    const char *type;                /* its name, "convolutional" also for [conv] */
    double batch;                    /* images of a micro-batch */
    int drawn;                       /* side of the input that random= has drawn; 0: the cfg's */
    int faults;                      /* number of faults that have been told */
    struct cmn_cfg_shape in, out;
    struct cmn_cfg_shape *shape; /* of each section; [0] is the input of the network */
};

/* Tells of a fault in a line of the cfg; for `line` NULL in the section. */
void cmn_cfg_tell(struct cmn_cfg_walk *w, enum cmn_cfg_fault fault, const struct cmn_cfg_line *line,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Returns a number of the section, or `otherwise` if it has none. */
double cmn_cfg_whole(struct cmn_cfg_walk *w, const char *key, double otherwise);

/* Sets w->out from w->in and the section, and tells of what does not fit. Returns -1 if this Darknet
 * has no such layer. */
int cmn_cfg_shape(struct cmn_cfg_walk *w);

/* Returns the numbers of an image's truth that a layer which learns compares its output with; 0 if
 * this layer does not learn. */
double cmn_cfg_truths(struct cmn_cfg_walk *w);

#endif
