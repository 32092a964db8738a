#include "engine/plan.h"

#include "darknet.h"

#include "engine/darknet_net.h"
#include "engine/gradients.h"

void cmn_plan_device(int device)
{
    gpu_index = device;
#ifdef GPU
    if (device >= 0) {
        cuda_set_device(device);
    }
#endif
}

struct cmn_plan cmn_plan_cfg(const char *cfg)
{
    network *net = parse_network_cfg((char *)cfg);
    struct cmn_gradients g;
    struct cmn_plan plan;

    cmn_gradients_open(&g, cmn_net_of(net), NULL, NULL);
    plan = (struct cmn_plan){
        .batch = net->batch,
        .subdivisions = net->subdivisions,
        .tensors = g.exchange.tensors,
        .floats = cmn_gradients_floats(&g, CMN_GRADIENT),
        .flat = g.exchange.block.n + g.exchange.metrics.n,
    };
    cmn_gradients_close(&g);
    free_network(net);
    return plan;
}
