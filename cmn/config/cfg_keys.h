/* Keys of a cfg's sections that Darknet has not looked for: what people meant by them. Local. */
#ifndef CMN_CFG_KEYS_H
#define CMN_CFG_KEYS_H

#include <stddef.h>

/* Writes into `text` what is wrong with `key`: that only AlexeyAB's Darknet knows it, that another key
 * of the section leaves it without effect, that it stands there twice, or which of the `n` keys that Darknet has looked for in
 * the section it is nearest to. */
void cmn_cfg_key_describe(const char *key, const char *const *looked_for, int n, char *text,
                          size_t bytes);

#endif
