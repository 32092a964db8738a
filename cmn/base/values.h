/* What numbers may be that come from a file, which anybody may have written. Local. */
#ifndef CMN_VALUES_H
#define CMN_VALUES_H

#include <stddef.h>

/* A block of memory holds values of one kind. */
enum cmn_values {
    CMN_VALUES_ANY,    /* all bytes will do */
    CMN_VALUES_FINITE, /* floats, neither NaN nor infinite */
    CMN_VALUES_COUNT,  /* longs, 0 to the most that is given */
    CMN_VALUES_FLAG    /* ints, 0 or 1 */
};

/* Whether all values of the block are of this kind. 0, or -1 with a reason: which value it is, and
 * what it may be. */
int cmn_values_check(enum cmn_values kind, long most, const void *block, size_t bytes);

/* Up to it, 2^53, a double holds every whole number. */
#define CMN_MOST_EXACT 9007199254740992.

/* What is wrong with a box of a label file, whose numbers are parts of the image: centre and size. NULL
 * where nothing is: edges are rounded. */
extern const char cmn_box_is_empty[], cmn_box_in_pixels[], cmn_box_reaches_out[];
const char *cmn_box_fault(float x, float y, float w, float h);

/* A number by name, and what it may be. */
struct cmn_number {
    const char *name;
    double low, high;
    int whole;
};

/* Whether the value is such a number; NaN never is. 0, or -1 with a reason: name, value, range. */
int cmn_number_check(const struct cmn_number *n, double value);

#endif
