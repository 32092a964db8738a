/* The problems that `darknet cmn doctor` has found: the number of each kind, and the first ten of
 * each kind, over all ranks. */
#ifndef CMN_PROBLEMS_H
#define CMN_PROBLEMS_H

#include <stdint.h>
#include <stdio.h>

#include "mpi/topology.h"

enum cmn_problem_kind {
    /* in the .data file, the cfg and the lists */
    CMN_BAD_LINE,
    CMN_BAD_NUMBER,
    CMN_BAD_WORD,
    CMN_BAD_LAYER,
    CMN_BAD_FILE,
    CMN_BAD_CLASSES,
    CMN_BAD_FILTERS,
    CMN_BAD_ANCHORS,
    CMN_REFUSED_LAYER,
    CMN_BAD_NAMES,
    /* in images */
    CMN_MISSING_IMAGE,
    CMN_UNREADABLE_IMAGE,
    CMN_TURNED_IMAGE,
    CMN_LISTED_TWICE,
    CMN_TRAINED_AND_VALID,
    CMN_SAME_BYTES,
    /* in labels */
    CMN_NO_LABEL_FILE,
    CMN_BAD_LABEL,
    CMN_UNKNOWN_CLASS,
    CMN_EMPTY_BOX,
    CMN_BOX_OUTSIDE,
    CMN_BOX_CUT,
    CMN_MANY_BOXES,
    CMN_NO_LABEL,
    CMN_MANY_LABELS,
    CMN_UNUSED_CLASS,
    CMN_LAST_OF_FILES = CMN_UNUSED_CLASS,
    /* in the network */
    CMN_UNUSED_KEY,
    CMN_FOREIGN_KEY,
    CMN_ADVICE,
    CMN_NO_ROOM,
    CMN_PROBLEM_KINDS
};

enum { CMN_PROBLEMS_SHOWN = 10, CMN_PROBLEM_TEXT = 480 };

struct cmn_problem {
    int64_t place; /* problems are sorted by it */
    char text[CMN_PROBLEM_TEXT];
};

struct cmn_problems {
    long count[CMN_PROBLEM_KINDS];
    struct cmn_problem first[CMN_PROBLEM_KINDS][CMN_PROBLEMS_SHOWN];
};

/* Local, thread-safe. `place` may be any number that grows with the place in the files. The text
 * must name file and line. */
void cmn_problem_add(struct cmn_problems *p, enum cmn_problem_kind kind, int64_t place,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Collective, blocking. Afterwards rank 0 has all ranks' problems. */
void cmn_problems_gather(struct cmn_problems *p, const struct cmn_topology *t);

/* Local. Prints the kinds from `first` to `last`. */
void cmn_problems_print(const struct cmn_problems *p, enum cmn_problem_kind first,
                        enum cmn_problem_kind last, FILE *out);

/* Local. Returns the number of faults, at which a training stops or from which it suffers, or of
 * notes, which do no harm. */
long cmn_problems_count(const struct cmn_problems *p, int notes);

#endif
