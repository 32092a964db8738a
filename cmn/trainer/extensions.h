/* The one list of a training's extensions. */
#ifndef CMN_EXTENSIONS_H
#define CMN_EXTENSIONS_H

#include "trainer/extension.h"

/* Collective. Opens all extensions that the options ask for, and closes them. The model is
 * attached. */
void cmn_extensions_open(struct cmn_step *p);
void cmn_extensions_close(struct cmn_step *p);

#endif
