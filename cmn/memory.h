/* How much memory this machine, or the container on it, can still give. */
#ifndef CMN_MEMORY_H
#define CMN_MEMORY_H

#include <stddef.h>

/* Local. Bytes that can be taken without swapping or being killed for it; file cache counts as free. */
size_t cmn_memory_free(void);

#endif
