/* dummy: no exchange, to measure the time without communication.
 *
 * Steps: none. Bytes: none. The ranks' weights drift apart: never train with it. */
#include <stddef.h>

#include "communicators/communicator.h"

static int open_dummy(void **self, const struct cmn_communicator *c, const struct cmn_topology *t,
                      const struct cmn_options *o)
{
    (void)c;
    (void)o;
    (void)t;
    *self = NULL;
    return 0;
}

static void allreduce_dummy(void *self, const struct cmn_exchange *x)
{
    (void)self;
    (void)x;
}

static void close_dummy(void *self)
{
    (void)self;
}

const struct cmn_communicator cmn_communicator_dummy = {
    .name = "dummy",
    .cpu = "yes",
    .gpu = "yes",
    .use = "measuring only: exchanges nothing, weights drift apart",
    .sums = 0,
    .open = open_dummy,
    .allreduce = allreduce_dummy,
    .close = close_dummy,
};
