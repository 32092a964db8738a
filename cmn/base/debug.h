/* debug: the environment variables CMN_DEBUG_…. Local.
 *
 * They are for tests and measurements; users need none of them. The table is in debug.c, and
 * docs/internals/debug.md describes it. A variable is set where mpiexec starts the ranks: `mpiexec
 * -x CMN_DEBUG_EXCHANGE=ring …` sets it on all nodes. The ranks compare their variables together
 * with their keys. */
#ifndef CMN_DEBUG_H
#define CMN_DEBUG_H

#include <stddef.h>

/* Returns the position, from 1, of the variable's value among its words; 0 if it is not set. `name`
 * is a name of the table, without CMN_DEBUG_. */
int cmn_debug_word(const char *name);

/* Returns the variable's value as a number; 0 if it is not set. */
double cmn_debug_number(const char *name);

/* Returns 0, or -1 with a reason if the environment has an unknown CMN_DEBUG_ variable or a value
 * that the table does not allow. */
int cmn_debug_check(void);

/* Writes one line "NAME = value\n" for each variable, so that ranks can compare them. Returns 0, or
 * -1 with a reason if `bytes` are too few. */
int cmn_debug_print(char *text, size_t bytes);

#endif
