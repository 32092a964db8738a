/* Keys of a cfg's sections that Darknet has not looked for: what people meant by them. Local. */
#ifndef CMN_CFG_KEYS_H
#define CMN_CFG_KEYS_H

#include <stddef.h>

#include "config/cfg_file.h"

/* Writes into `text` what is wrong with `key`, which Darknet knows nowhere else: that another key
 * of the section leaves it without effect, that it stands there twice, or which of the `n` keys
 * that Darknet has looked for in the section it is nearest to. */
void cmn_cfg_key_describe(const char *key, const char *const *looked_for, int n, char *text,
                          size_t bytes);

/* The same of a .data file's key; `again`: a line before it has it, too. 0: it has an effect. */
int cmn_data_key_describe(const char *key, int again, char *text, size_t bytes);

/* Before all other calls, where Darknet is AlexeyAB's: no key is another's from here on. */
void cmn_cfg_keys_none_elsewhere(void);

/* Whether only AlexeyAB's Darknet, and not this one, knows this key, in any section. */
int cmn_cfg_key_elsewhere(const char *key);

/* Writes the names of those keys of a cfg, each with its first line, and returns how many lines
 * have one. */
int cmn_cfg_keys_elsewhere(const struct cmn_cfg_file *cfg, char *text, size_t bytes);

/* The lines about keys without effect, as long as the process lives: one is added, and read back
 * from 0 until NULL. */
void cmn_cfg_keys_add(const char *line);
const char *cmn_cfg_keys_at(int i);

#endif
