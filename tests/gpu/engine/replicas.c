/* tests/ranks/engine/gradients.c, whose networks are on GPUs here. */
#include "gpu/gpu.h"

#include "ranks/engine/gradients.c"
