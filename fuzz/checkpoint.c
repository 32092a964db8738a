/* What is left of a training that has died. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "base/log.h"

static void look_at(const struct cmn_checkpoint_file *f)
{
    for (size_t i = 0; i < cmn_checkpoint_sections(f); i++) {
        struct cmn_checkpoint_section section;
        size_t bytes;
        const void *data;
        cmn_checkpoint_at(f, i, &section);
        data = cmn_checkpoint_section(f, section.name, section.rank, &bytes);
        if (data && bytes != section.bytes) {
            __builtin_trap(); /* whoever restores it would trust the wrong length */
        }
    }
    cmn_checkpoint_section(f, "weights", CMN_NO_RANK, &(size_t){0});
    cmn_checkpoint_section(f, "nothing", 3, &(size_t){0});
    cmn_checkpoint_iteration(f);
    cmn_checkpoint_when(f);
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
        cmn_checkpoint_behind(file);
        fclose(file);
    }
}
