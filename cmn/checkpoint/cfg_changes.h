/* The differences between the cfg that a checkpoint was written with and the cfg that resumes from
 * it. All local. */
#ifndef CMN_CFG_CHANGES_H
#define CMN_CFG_CHANGES_H

#include <stddef.h>

/* Returns the lines of a cfg without blanks, empty lines and comments. The caller frees it. */
char *cmn_cfg_plain(const char *text);

/* Compares the checkpoint's cfg `there` with this run's cfg `here`; both must come from
 * cmn_cfg_plain(). Returns the number of keys with different values; a missing layer counts as one.
 * It does not count max_batches of [net], with which a training is continued, nor the cmn_ keys,
 * which are compared elsewhere. `text` describes the first three differences. */
int cmn_cfg_changes(const char *there, const char *here, char *text, size_t bytes);

#endif
