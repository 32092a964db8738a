#include "engine/plan.h"

#include <stdlib.h>

#include "darknet.h"

#include "mpi/device.h"
#include "mpi/files.h"
#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "trainer/trainer.h"

int cmn_plan_device(struct cmn_session *s, int device)
{
    gpu_index = device;
#ifdef GPU
    if (device >= 0) {
        cuda_set_device(device);
    }
#endif
    return cmn_device_agree(&s->topology, device, (int)s->options.share_gpus);
}

static int measure(network *net, struct cmn_plan *plan)
{
    const struct cmn_trainer *t = net->cmn;
    struct cmn_gradients g;

    if (cmn_gradients_open(&g, cmn_net_of(net), NULL, NULL)) {
        return -1;
    }
    *plan = (struct cmn_plan){
        .mine = t->local,
        .all = t->total,
        .subdivisions = net->subdivisions,
        .tensors = g.exchange.tensors,
        .flat = g.exchange.block.n + g.exchange.metrics.n,
    };
    for (int i = 0; i < plan->tensors; i++) {
        plan->floats += g.exchange.tensor[i].n;
    }
    cmn_gradients_close(&g);
    return 0;
}

int cmn_plan_cfg(struct cmn_session *s, const char *cfg, struct cmn_plan *plan)
{
    static const struct cmn_command training = {"a", "cfg", CMN_TRAINS, CMN_NO_ANSWER, ""};
    const struct cmn_command *command = s->command;
    char *text = cmn_files_cfg_text(cfg);
    network *net;
    int result;

    cmn_files_compare("cfg", text, &s->topology);
    free(text);
    s->command = &training; /* shares are those of training */
    net = parse_network_cfg((char *)cfg);
    result = measure(net, plan);
    free_network(net);
    s->command = command;
    return result;
}
