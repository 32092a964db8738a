/* values: checks of numbers from a file, which anybody may have written. Local. */
#ifndef CMN_VALUES_H
#define CMN_VALUES_H

#include <stddef.h>

/* The kind of the values in a block of memory. */
enum cmn_values {
    CMN_VALUES_ANY,    /* all bytes are valid */
    CMN_VALUES_FINITE, /* floats, neither NaN nor infinite */
    CMN_VALUES_COUNT,  /* longs, 0 to `most` */
    CMN_VALUES_FLAG    /* ints, 0 or 1 */
};

/* Checks that all values of the block are of this kind. Returns 0, or -1 with a reason that says
 * which value is wrong, and what it may be. */
int cmn_values_check(enum cmn_values kind, long most, const void *block, size_t bytes);

/* 2^53: a double holds every whole number up to this one. */
#define CMN_MOST_EXACT 9007199254740992.

/* cmn_box_fault() returns which of these faults a box of a label file has, or NULL if it has none.
 * Centre and size are parts of the image. Edges may be off by a rounding error. */
extern const char cmn_box_is_empty[], cmn_box_in_pixels[], cmn_box_reaches_out[];
const char *cmn_box_fault(float x, float y, float w, float h);

/* A number's name, and its allowed values. */
struct cmn_number {
    const char *name;
    double low, high;
    int whole;
};

/* Returns 0 if the value is allowed, or -1 with a reason: name, value, range. NaN is never
 * allowed. */
int cmn_number_check(const struct cmn_number *n, double value);

#endif
