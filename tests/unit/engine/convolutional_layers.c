/* unit/darknet/layers.c with oneDNN's convolutions, on one thread: more of them wait for each other at
 * each of its thousands of small products. */
#include <cblas.h>

#include "engine/convolution.h"

#include "unit/darknet/layers.c"

__attribute__((constructor)) static void one_thread(void)
{
    openblas_set_num_threads(1);
    cmn_convolution_use(1);
}
