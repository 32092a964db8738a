/* Nets for tests/unit/darknet/layers.c: one for each type of layer, and for each way in which a
 * layer computes. */
#ifndef TESTS_LAYERS_TABLE_H
#define TESTS_LAYERS_TABLE_H

/* All but the first section's name. `trained`: floats that the net learns, in closed form; 0:
 * none. */
struct layer_case {
    const char *name, *cfg;
    size_t trained;
};

#define IMAGE "batch=2\nheight=6\nwidth=6\nchannels=4\n"
#define IMAGES "batch=16\nheight=6\nwidth=6\nchannels=2\n"
#define VECTOR "batch=2\ninputs=6\n"
/* Backward divides by the number of values where forward divides by one less: with 512 the
 * difference is small. */
#define VECTORS "batch=512\ninputs=3\n"

/* A layer without weights stands on one with weights that a later layer reads, too: what both
 * hand back must add up. */
#define CONV "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=tanh\n"
#define BOTH "[route]\nlayers=0,1\n"
enum { CONV_FLOATS = 4 * 4 * 9 + 4 };

static const struct layer_case trainable[] = {
    {"convolutional", IMAGE "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=tanh\n",
     3 * 4 * 9 + 3},
    {"convolutional, groups and stride",
     IMAGE "[convolutional]\nfilters=4\nsize=3\nstride=2\ngroups=2\nactivation=logistic\n",
     4 * 2 * 9 + 4},
    {"convolutional, size 1",
     IMAGE CONV "[convolutional]\nfilters=4\nsize=1\nactivation=logistic\n" BOTH,
     CONV_FLOATS + 4 * 4 + 4},
    {"convolutional, size 1 and stride",
     IMAGE CONV "[convolutional]\nfilters=2\nsize=1\nstride=2\nactivation=logistic\n" BOTH,
     CONV_FLOATS + 2 * 4 + 2},
    {"convolutional, batch norm",
     IMAGES "[convolutional]\nfilters=3\nsize=3\npad=1\nbatch_normalize=1\nactivation=tanh\n",
     3 * 2 * 9 + 6},
    {"connected",
     VECTOR "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=3\nactivation=loggy\n",
     5 * 6 + 5 + 3 * 5 + 3},
    {"connected, batch norm", VECTORS "[connected]\noutput=4\nbatch_normalize=1\nactivation=tanh\n",
     4 * 3 + 8},
    {"local", IMAGE CONV "[local]\nfilters=3\nsize=3\nstride=1\npad=1\nactivation=tanh\n",
     CONV_FLOATS + 36 * (3 * 4 * 9 + 3)},
    {"local, stride", IMAGE "[local]\nfilters=2\nsize=3\nstride=2\npad=0\nactivation=logistic\n",
     4 * (2 * 4 * 9 + 2)},
    {"deconvolutional",
     IMAGE "[deconvolutional]\nfilters=3\nsize=4\nstride=2\npadding=1\nactivation=tanh\n",
     3 * 4 * 16 + 3},
    {"deconvolutional, batch norm",
     IMAGES "[deconvolutional]\nfilters=3\nsize=2\nstride=2\nbatch_normalize=1\nactivation=tanh\n",
     3 * 2 * 4 + 6},
    {"batchnorm", IMAGES "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[batchnorm]\n" BOTH,
     3 * 2 + 3 + 3},
    {"batchnorm, first", IMAGES "[batchnorm]\n", 2},
};

static const struct layer_case others[] = {
    {"shortcut", IMAGE CONV CONV "[shortcut]\nfrom=-2\nactivation=tanh\n", 2 * CONV_FLOATS},
    {"shortcut, alpha and beta",
     IMAGE CONV CONV "[shortcut]\nfrom=-2\nalpha=.5\nbeta=2\nactivation=loggy\n", 2 * CONV_FLOATS},
    {"shortcut, from wider",
     IMAGE CONV
     "[convolutional]\nfilters=3\nsize=3\npad=1\nstride=2\nactivation=tanh\n[shortcut]\nfrom=-2\n",
     CONV_FLOATS + 3 * 4 * 9 + 3},
    {"shortcut, from narrower",
     IMAGE "[convolutional]\nfilters=3\nsize=3\npad=1\nstride=2\nactivation=tanh\n"
           "[upsample]\nstride=2\n[shortcut]\nfrom=-2\n",
     3 * 4 * 9 + 3},
    {"route", IMAGE CONV CONV "[route]\nlayers=-1,-2,-1\n", 2 * CONV_FLOATS},
    {"upsample", IMAGE CONV "[upsample]\nstride=2\nscale=1.5\n[shortcut]\nfrom=-2\n", CONV_FLOATS},
    {"upsample, downwards", IMAGE CONV "[upsample]\nstride=-2\nscale=.5\n[shortcut]\nfrom=-2\n",
     CONV_FLOATS},
    {"reorg", IMAGE CONV "[reorg]\nstride=2\n" BOTH, CONV_FLOATS},
    {"reorg, reverse", IMAGE CONV "[reorg]\nstride=2\nreverse=1\n" BOTH, CONV_FLOATS},
    {"reorg, flatten", IMAGE CONV "[reorg]\nflatten=1\n" BOTH, CONV_FLOATS},
    {"reorg, flatten back", IMAGE CONV "[reorg]\nflatten=1\nreverse=1\n" BOTH, CONV_FLOATS},
    {"reorg, extra", IMAGE CONV "[reorg]\nextra=3\n" BOTH, CONV_FLOATS},
    {"maxpool", IMAGE CONV "[maxpool]\nsize=2\nstride=2\n" BOTH, CONV_FLOATS},
    {"maxpool, overlapping", IMAGE CONV "[maxpool]\nsize=3\nstride=2\n" BOTH, CONV_FLOATS},
    {"avgpool", IMAGE CONV "[avgpool]\n" BOTH, CONV_FLOATS},
    {"dropout",
     IMAGE CONV
     "[dropout]\nprobability=.4\n[convolutional]\nfilters=2\nsize=1\nactivation=linear\n",
     CONV_FLOATS + 2 * 4 + 2},
};

#endif
