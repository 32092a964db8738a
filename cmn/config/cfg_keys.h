/* cfg_keys: keys of a cfg's sections that Darknet has not looked for, and what people meant by
 * them. Local. */
#ifndef CMN_CFG_KEYS_H
#define CMN_CFG_KEYS_H

#include <stddef.h>

#include "config/cfg_file.h"

/* Returns whether the word is one of a list, " these words ". */
int cmn_cfg_is_among(const char *list, const char *word);

/* Finds out how many classes the boxes have that the cfg's layers find, and how many boxes of an
 * image a training takes (0: any number). Returns 0 if no layer finds boxes. */
int cmn_cfg_boxes(const struct cmn_cfg_file *cfg, int *classes, int *max);

/* Returns the list that Darknet trains with if the .data file names none. `boxes`: a detector. */
const char *cmn_data_train_list(int boxes);

/* Returns what another key of [net] must be for `key` to have an effect, or NULL if it has one. */
const char *cmn_cfg_key_needs(const struct cmn_cfg_file *cfg, const char *key);

/* Writes into `text` why a key of a .data file has no effect: it is unknown, or a line before it has
 * the same key, which `again` says. Returns 0 if the key has an effect, and 1 if not. */
int cmn_data_key_describe(const char *key, int again, char *text, size_t bytes);

/* Returns whether this Darknet is AlexeyAB's and has this key in a section. */
int cmn_cfg_key_of_more(const char *key);

/* Returns whether AlexeyAB's Darknet, and not this one, knows this key in any section. */
int cmn_cfg_key_elsewhere(const char *key);

/* Writes the names of those keys of a cfg, each with its first line. Returns the number of lines
 * that have such a key. */
int cmn_cfg_keys_elsewhere(const struct cmn_cfg_file *cfg, char *text, size_t bytes);

#endif
