/* cfg_keys: keys of a cfg's sections that Darknet has not looked for, and what people meant by
 * them. Local. */
#ifndef CMN_CFG_KEYS_H
#define CMN_CFG_KEYS_H

#include <stddef.h>

#include "config/cfg_file.h"

/* Writes into `text` what is wrong with `key`, which Darknet has not used in its section, and which
 * is not AlexeyAB's (cmn_cfg_key_elsewhere): it needs another key of the section to have an effect,
 * the section has it twice, or it is unknown. For an unknown key, names the nearest of the `n` keys
 * that Darknet has looked for in the section. */
void cmn_cfg_key_describe(const char *key, const char *const *looked_for, int n, char *text,
                          size_t bytes);

/* Does the same for a key of a .data file. `again` is set if a line before it has the same key.
 * Returns 0 if the key has an effect, and 1 if not. */
int cmn_data_key_describe(const char *key, int again, char *text, size_t bytes);

/* Declares that this Darknet is AlexeyAB's, so that no key is another Darknet's. Must be called
 * before all other functions. */
void cmn_cfg_keys_none_elsewhere(void);

/* Returns whether AlexeyAB's Darknet, and not this one, knows this key in any section. */
int cmn_cfg_key_elsewhere(const char *key);

/* Writes the names of those keys of a cfg, each with its first line. Returns the number of lines
 * that have such a key. */
int cmn_cfg_keys_elsewhere(const struct cmn_cfg_file *cfg, char *text, size_t bytes);

/* A list of lines about keys without effect; it lasts as long as the process. cmn_cfg_keys_add()
 * adds a copy of a line. cmn_cfg_keys_at() returns line i, from 0, and NULL after the last one. */
void cmn_cfg_keys_add(const char *line);
const char *cmn_cfg_keys_at(int i);

#endif
