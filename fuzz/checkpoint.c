/* A checkpoint: what is left of a training that has died, or came from somebody else. */
#include "fuzz.h"

#include <stdio.h>

#include "base/log.h"
#include "checkpoint/reader.h"

/* Reads each byte that the reader hands out: a sanitizer sees what does not belong to the file. */
static void look_at(const struct cmn_checkpoint_file *f)
{
    volatile unsigned char sum = 0;

    for (size_t i = 0; i < f->tensors; i++) {
        const struct cmn_checkpoint_tensor *t = &f->tensor[i];
        for (size_t k = 0; k < t->bytes; k++) {
            sum ^= ((const unsigned char *)t->data)[k];
        }
        if (cmn_checkpoint_tensor(f, t->name, t->rank) != t) {
            __builtin_trap(); /* who resumes would get another tensor */
        }
    }
    cmn_checkpoint_tensor(f, "nothing", 3);
    if (f->iteration < 0 || f->written < 0 || f->mark.weights > f->n || !f->training) {
        __builtin_trap();
    }
}

void fuzz_checkpoint(const uint8_t *data, size_t size)
{
    struct cmn_checkpoint_file *f = cmn_checkpoint_parse(data, size);
    const char *name = fuzz_file(0, data, size);
    FILE *file;

    if (f) {
        look_at(f);
        cmn_checkpoint_free(f);
    } else {
        cmn_reason();
    }
    cmn_checkpoint_free(cmn_checkpoint_read(name));
    file = fopen(name, "rb");
    if (file) {
        fseek(file, size > 20 ? 20 : 0, SEEK_SET);
        cmn_checkpoint_follows_weights(file);
        fclose(file);
    }
}
