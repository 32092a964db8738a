/* Targets that make a network. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "darknet.h"

#include "parser.h"

/* A network that is taken is used as well, when its few values make that quick: on zeros, and
 * trained for a step. */
static void use(network *net)
{
    double work = 0;

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        work += (double)l->workspace_size / sizeof(float) * (l->n + 1) +
                (double)l->outputs * (l->inputs + 1) + (double)l->outputs * l->size * l->size;
    }
    if (work * net->batch > 1e6) {
        return;
    }
    network_predict(net, net->input);
    for (int i = 0; i < net->n; i++) {
        if (net->layers[i].cost) {
            net->train = 1;
            train_network_datum(net);
            return;
        }
    }
}

void fuzz_cfg(const uint8_t *data, size_t size)
{
    network *net = parse_network_cfg(fuzz_file(0, data, size));

    use(net);
    free_network(net);
}

static const char *const nets[] = {
    "[net]\nbatch=2\nheight=8\nwidth=8\nchannels=3\n"
    "[convolutional]\nfilters=4\nsize=3\npad=1\nstride=1\nbatch_normalize=1\nactivation=leaky\n"
    "[convolutional]\nfilters=4\nsize=1\ngroups=2\nflipped=1\nactivation=relu\n"
    "[deconvolutional]\nfilters=2\nsize=2\nstride=2\n[batchnorm]\n[maxpool]\nsize=2\nstride=2\n"
    "[local]\nfilters=2\nsize=3\npad=1\nstride=1\n[connected]\noutput=5\nbatch_normalize=1\n["
    "softmax]\n",
    "[net]\nbatch=4\ntime_steps=2\ninputs=6\n[rnn]\noutput=4\nbatch_normalize=1\n[gru]\noutput=3\n["
    "lstm]\noutput=4\n"
    "[connected]\noutput=6\n[softmax]\n",
    "[net]\nbatch=4\ntime_steps=2\nheight=4\nwidth=4\nchannels=2\n[crnn]\noutput_filters=2\nhidden_"
    "filters=3\n"
    "[convolutional]\nfilters=3\nsize=1\nnumload=2\nbinary=1\n[connected]\noutput="
    "3\ndontloadscales=1\n"
    "batch_normalize=1\n[connected]\noutput=2\ndontload=1\n[softmax]\n",
};

enum { NETS = sizeof nets / sizeof nets[0] };

/* The first byte chooses the network. */
void fuzz_weights(const uint8_t *data, size_t size)
{
    const char *cfg;
    network *net;

    if (size < 1) {
        return;
    }
    cfg = nets[data[0] % NETS];
    net = parse_network_cfg(fuzz_file(0, cfg, strlen(cfg)));
    load_weights(net, fuzz_file(1, data + 1, size - 1));
    use(net);
    free_network(net);
}
