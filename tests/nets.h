/* Darknet's networks from a cfg given as text. */
#ifndef TESTS_NETS_H
#define TESTS_NETS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/darknet_tree.h"

/* Writes `text` to a file of its own below TMPDIR; the caller removes and frees the name. */
static inline char *nets_file(const char *text)
{
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    size_t bytes = strlen(folder) + 32;
    char *name = malloc(bytes);
    FILE *file;
    int fd;

    snprintf(name, bytes, "%s/cmn-test-XXXXXX", folder);
    fd = mkstemp(name);
    file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) {
        perror(name);
        abort();
    }
    return name;
}

static inline network *nets_parse(const char *cfg)
{
    char *name = nets_file(cfg);
    network *net = cmn_tree_read(name);

    unlink(name);
    free(name);
    return net;
}

/* tests.mk defines it for AlexeyAB's Darknet. */
#ifdef NETWORKS_BY_VALUE
#define DK_NET(net) (*(net))
#else
#define DK_NET(net) (net)
#endif

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
