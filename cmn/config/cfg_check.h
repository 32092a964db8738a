/* cfg_check: what is wrong with a cfg and a .data file, before Darknet reads them. Local.
 *
 * A training, an evaluation and `darknet cmn doctor` call the same check; without -cmn Darknet
 * reads its files by itself. Lines, numbers and words are checked first, then the shapes of the
 * layers, one after the other, and what has to fit: filters before [yolo], anchors, masks, the
 * layers that [route] and [shortcut] name, batch and subdivisions, classes, and the command. */
#ifndef CMN_CFG_CHECK_H
#define CMN_CFG_CHECK_H

#include "config/cfg_fault.h"

/* Checks a .data file. */
void cmn_data_check(const char *name, const struct cmn_cfg_file *data,
                    const struct cmn_cfg_listener *listener);

/* Checks a cfg. */
void cmn_cfg_check(const struct cmn_cfg_question *q, const struct cmn_cfg_listener *listener);

#endif
