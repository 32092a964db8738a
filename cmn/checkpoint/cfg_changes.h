/* What differs between the cfg that a checkpoint was written with and the one that resumes from
 * it. All local. */
#ifndef CMN_CFG_CHANGES_H
#define CMN_CFG_CHANGES_H

#include <stddef.h>

/* The lines of a cfg without blanks and comments. The caller frees. */
char *cmn_cfg_plain(const char *text);

/* Both texts as cmn_cfg_plain makes them. How many keys have another value, not counting what
 * a training may change at any time: its end, its rate, and cmn_ keys, which are compared
 * elsewhere. `text` gets the first three in words. */
int cmn_cfg_changes(const char *there, const char *here, char *text, size_t bytes);

#endif
