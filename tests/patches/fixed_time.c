/*
 * Preloaded: time() stands still, so that two programs that call
 * srand(time(0)) draw the same numbers.
 */
#include <time.h>

time_t time(time_t *out)
{
    const time_t fixed = 1500000000;

    if (out)
        *out = fixed;
    return fixed;
}
