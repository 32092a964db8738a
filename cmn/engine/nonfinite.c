#include "engine/nonfinite.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/simd.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/net.h"
#include "engine/nhwc_layers.h"

enum {
    WHOLE = 4096, /* matrices of at most this many floats are scanned whole */
    CHUNK = 1024  /* floats that one vector loop scans */
};
#define EXPONENT UINT32_C(0x7f800000)

static uint32_t bits_of(const float *x)
{
    uint32_t bits;

    memcpy(&bits, x, sizeof bits);
    return bits & UINT32_C(0x7fffffff);
}

/* Returns the largest of the floats' bits without their sign: the bits of infinity are above those
 * of all finite numbers, the bits of NaN above those of infinity. */
CMN_VECTORS static int32_t largest(const float *x, size_t n)
{
    int32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_C(0x7fffffff);
        most = bits > most ? bits : most;
    }
    return most;
}

const float *cmn_nonfinite_find(const float *x, size_t n)
{
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t here = n - at < CHUNK ? n - at : CHUNK;
        if ((uint32_t)largest(x + at, here) < EXPONENT) {
            continue;
        }
        for (size_t i = at; i < at + here; i++) {
            if (bits_of(&x[i]) >= EXPONENT) {
                return &x[i];
            }
        }
    }
    return NULL;
}

static int note(struct cmn_nonfinite *found, const struct cmn_tensor *t, const float *x)
{
    if (x) {
        *found = (struct cmn_nonfinite){t->layer, t->name, *x};
    }
    return x != NULL;
}

int cmn_nonfinite_gradient(const struct cmn_tensor *t, struct cmn_nonfinite *found)
{
    const float *x = *t->at;
    size_t columns = t->rows ? t->n / (size_t)t->rows : 0;

    if (!columns || t->n <= WHOLE) {
        return note(found, t, cmn_nonfinite_find(x, t->n));
    }
    if (note(found, t, cmn_nonfinite_find(x, columns))) {
        return 1;
    }
    for (size_t i = 0; i < t->n; i += columns) {
        if (bits_of(&x[i]) >= EXPONENT) {
            return note(found, t, &x[i]);
        }
    }
    return 0;
}

/* The list begins with the last layer, so a later match is in a lower layer; within a layer the
 * first match counts. */
int cmn_nonfinite_tensor(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                         struct cmn_nonfinite *found)
{
    int any = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == kind && !(any && found->layer == t->layer)) {
            any |= note(found, t, cmn_nonfinite_find(*t->at, t->n));
        }
    }
    return any;
}

int cmn_nonfinite_loss(const struct cmn_net *handle, struct cmn_nonfinite *found)
{
    const network *net = cmn_network(handle);
    float loss = cmn_net_loss(handle);

    if (bits_of(&loss) < EXPONENT) {
        return 0;
    }
    *found = (struct cmn_nonfinite){-1, "loss", loss};
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        if (l->cost && bits_of(l->cost) >= EXPONENT) {
            found->layer = i;
            break;
        }
    }
    return 1;
}

static const char *word(float value)
{
    uint32_t bits = bits_of(&value);

    return bits < EXPONENT ? "nan or inf" : bits > EXPONENT ? "nan" : value < 0 ? "-inf" : "inf";
}

void cmn_nonfinite_say(const struct cmn_net *net, const struct cmn_nonfinite *found, char *text,
                       size_t bytes)
{
    if (found->layer < 0) {
        snprintf(text, bytes, "the %s is %s", found->name, word(found->value));
    } else {
        snprintf(text, bytes, "%s of layer %d (%s): %s", found->name, found->layer,
                 cmn_net_layer_name(net, found->layer), word(found->value));
    }
}

/* Returns whether x, with `each` floats per image, has a NaN or infinity. *image becomes the first
 * such image, or -1 if all images have one: layers that mix images spread it to all. */
static int in_images(const float *x, size_t each, size_t images, long *image)
{
    size_t bad = 0, first = 0;

    for (size_t i = 0; x && i < images; i++) {
        if (cmn_nonfinite_find(x + i * each, each)) {
            first = bad++ ? first : i;
        }
    }
    *image = bad && (bad < images || images == 1) ? (long)first : -1;
    return bad > 0;
}

void cmn_nonfinite_origin(const struct cmn_gradients *g, const struct cmn_net *handle, char *text,
                          size_t bytes, long *image)
{
    const network *net = cmn_network(handle);
    size_t images = (size_t)net->batch, used;
    struct cmn_nonfinite found;
    char what[128];

    text[0] = '\0';
    *image = -1;
    if (g->on_gpu) {
        return; /* input and outputs are in the GPU's memory */
    }
    if (cmn_nonfinite_tensor(g, CMN_WEIGHT, &found)) {
        cmn_nonfinite_say(handle, &found, what, sizeof what);
        snprintf(text, bytes, ", after an earlier update that left %s", what);
        return;
    }
    if (in_images(net->input, (size_t)net->inputs, images, image)) {
        snprintf(text, bytes, ", first seen in the network's input");
    } else if (in_images(net->truth, cmn_net_truths(handle), images, image)) {
        snprintf(text, bytes, ", first seen in the labels");
    }
    for (int i = 0; i < net->n && !text[0]; i++) {
        const layer *l = &net->layers[i];
        float *copy = cmn_nhwc_layers_decode(handle, i);
        if (in_images(copy ? copy : l->output, (size_t)l->outputs, (size_t)l->batch, image)) {
            snprintf(text, bytes, ", first seen in the output of layer %d (%s)", i,
                     cmn_net_layer_name(handle, i));
        }
        free(copy);
    }
    used = strlen(text);
    if (*image >= 0) {
        snprintf(text + used, bytes - used, ", of image %ld of the micro-batch", *image);
    }
}
