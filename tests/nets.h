/* Darknet's networks from a cfg given as text. */
#ifndef TESTS_NETS_H
#define TESTS_NETS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/darknet_tree.h"
#include "engine/net.h"

/* Writes `text` to a file of its own below TMPDIR; the caller removes and frees the name. */
static inline char *nets_file(const char *text)
{
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    size_t bytes = strlen(tmp) + 32;
    char *name = malloc(bytes);
    FILE *file;
    int fd;

    snprintf(name, bytes, "%s/cmn-test-XXXXXX", tmp);
    fd = mkstemp(name);
    file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) {
        perror(name);
        abort();
    }
    return name;
}

/* tests.mk defines it for AlexeyAB's Darknet, whose trainers bring the memory of a micro-batch. */
#ifdef NETWORKS_BY_VALUE
#define DK_NET(net) (*(net))
#else
#define DK_NET(net) (net)
#endif

/* net->input and net->truth have room for a micro-batch, and no others look at them. */
static inline network *nets_parse(const char *cfg)
{
    char *name = nets_file(cfg);
    network *net;

#ifdef NETWORKS_BY_VALUE
    gpu_index = -1; /* as its main() does it in a build for the CPU */
#endif
    net = cmn_tree_read(name);
    unlink(name);
    free(name);
#ifdef NETWORKS_BY_VALUE
    net->truths = (int)cmn_net_truths(cmn_net_of(net));
    net->input = calloc((size_t)net->inputs * (size_t)net->batch, sizeof *net->input);
    net->truth = calloc((size_t)net->truths * (size_t)net->batch, sizeof *net->truth);
#endif
    return net;
}

static inline void nets_free(network *net)
{
#ifdef NETWORKS_BY_VALUE
    free(net->input);
    free(net->truth);
#endif
    cmn_tree_free(net);
}

#ifdef NETWORKS_BY_VALUE
static inline network_state nets_state(network *net)
{
    return (network_state){
        .input = net->input, .truth = net->truth, .delta = net->delta, .train = 1, .net = *net};
}
#define NETS_PASS(net) *(net), nets_state(net)
#else
#define NETS_PASS(net) (net)
#endif

/* The passes of a training over the micro-batch in net->input. */
static inline void nets_forward(network *net)
{
    net->train = 1;
    forward_network(NETS_PASS(net));
}

static inline void nets_backward(network *net)
{
    backward_network(NETS_PASS(net));
}

/* A step of one micro-batch. */
static inline void nets_train(network *net)
{
#ifdef NETWORKS_BY_VALUE
    train_network_datum(*net, net->input, net->truth);
    update_network(*net);
#else
    train_network_datum(net);
#endif
}

/* Darknet's own update of each layer. */
static inline void nets_update(network *net, update_args a)
{
    for (int i = 0; i < net->n; i++) {
        layer *l = &net->layers[i];
        if (l->update) {
#ifdef NETWORKS_BY_VALUE
            l->update(*l, a.batch, a.learning_rate, a.momentum, a.decay);
#else
            l->update(*l, a);
#endif
        }
    }
}

#endif
