/* refused_layers: the layers and keys of a cfg that -cmn does not repair, and so refuses. Local, and
 * the same on all ranks.
 *
 * It is a part of cfg_check. */
#ifndef CMN_REFUSED_LAYERS_H
#define CMN_REFUSED_LAYERS_H

/* Returns why -cmn refuses a line of a cfg, and what to do, or NULL if it does not. `section` is
 * the line's section ("[net]"); in the line with which the section begins `key` is the same, as in
 * struct cmn_cfg_line. `use` is what the cfg is for, of the CMN_USE_ values. The text is static. */
enum { CMN_USE_TRAINS = 1, CMN_USE_BOXES = 2 };
const char *cmn_refused_layer(const char *section, const char *key, const char *value, int use);

#endif
