#include "base/values.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

/* Copies the value, because the memory of a file need not be aligned. */
static int is_right(enum cmn_values kind, long most, const char *at, double *found)
{
    float real;
    long count;
    int flag;

    switch (kind) {
    case CMN_VALUES_FINITE:
        memcpy(&real, at, sizeof real);
        *found = (double)real;
        return isfinite(real);
    case CMN_VALUES_COUNT:
        memcpy(&count, at, sizeof count);
        *found = (double)count;
        return count >= 0 && count <= most;
    case CMN_VALUES_FLAG:
        memcpy(&flag, at, sizeof flag);
        *found = flag;
        return flag == 0 || flag == 1;
    default:
        return 1;
    }
}

int cmn_values_check(enum cmn_values kind, long most, const void *block, size_t bytes)
{
    static const size_t size[] = {[CMN_VALUES_ANY] = 0,
                                  [CMN_VALUES_FINITE] = sizeof(float),
                                  [CMN_VALUES_COUNT] = sizeof(long),
                                  [CMN_VALUES_FLAG] = sizeof(int)};
    size_t n = size[kind] ? bytes / size[kind] : 0;
    double found;

    for (size_t i = 0; i < n; i++) {
        if (is_right(kind, most, (const char *)block + i * size[kind], &found)) {
            continue;
        }
        if (kind == CMN_VALUES_FINITE) {
            return cmn_fail("value %zu is %g, and must be a finite number", i, found);
        }
        return cmn_fail("value %zu is %.0f, and must be 0 to %ld", i, found,
                        kind == CMN_VALUES_FLAG ? 1 : most);
    }
    return 0;
}

int cmn_number_check(const struct cmn_number *n, double value)
{
    if (value >= n->low && value <= n->high && (!n->whole || !(floor(value) < value))) {
        return 0;
    }
    return cmn_fail("%s is %.17g, and must be a %snumber from %.17g to %.17g", n->name, value,
                    n->whole ? "whole " : "", n->low, n->high);
}

/* ---- boxes ---- */

/* Darknet ignores boxes with a smaller side than LEAST_BOX. */
static const float LEAST_BOX = .001F, ROUNDING = .005F;

const char cmn_box_is_empty[] =
    "it has no area, or less than a thousandth on a side, and Darknet leaves it out";
const char cmn_box_in_pixels[] =
    "these are parts of the image, 0 to 1, and what lies outside is left out";
const char cmn_box_reaches_out[] = "it reaches out of the image, and what lies outside is left out";

static int no_part(float centre, float size)
{
    return centre < 0 || centre > 1 || size > 1 + ROUNDING;
}

static int reaches_out(float centre, float size)
{
    return centre - size / 2 < -ROUNDING || centre + size / 2 > 1 + ROUNDING;
}

const char *cmn_box_fault(float x, float y, float w, float h)
{
    if (no_part(x, w) || no_part(y, h)) {
        return cmn_box_in_pixels;
    }
    if (w < LEAST_BOX || h < LEAST_BOX) {
        return cmn_box_is_empty;
    }
    return reaches_out(x, w) || reaches_out(y, h) ? cmn_box_reaches_out : NULL;
}
