/* The one list of compressors: it feeds the choice, `darknet cmn list`, docs and tests. */
#include <string.h>

#include "base/log.h"
#include "compression/compressor.h"

extern const struct cmn_compressor cmn_compressor_none, cmn_compressor_fp16, cmn_compressor_bf16,
    cmn_compressor_powersgd;

static const struct cmn_compressor *const registry[] = {
    &cmn_compressor_none,
    &cmn_compressor_fp16,
    &cmn_compressor_bf16,
    &cmn_compressor_powersgd,
};

enum { COMPRESSORS = sizeof registry / sizeof registry[0] };

const struct cmn_compressor *cmn_compressor_at(int i)
{
    return i >= 0 && i < COMPRESSORS ? registry[i] : NULL;
}

const struct cmn_compressor *cmn_compressor_wanted(const struct cmn_options *o)
{
    const char *name = cmn_options_word(o, "cmn_compress");

    if (o->compress != CMN_COMPRESS_NONE && o->dtype != CMN_FP32) {
        cmn_fail("cmn_compress and cmn_allreduce_dtype are both set: take one of them");
        return NULL;
    }
    if (o->compress == CMN_COMPRESS_NONE) {
        name = o->dtype == CMN_FP32 ? "off" : cmn_options_word(o, "cmn_allreduce_dtype");
    }
    for (int i = 0; i < COMPRESSORS; i++) {
        if (!strcmp(registry[i]->name, name)) {
            return registry[i];
        }
    }
    cmn_fail("%s is no compressor", name);
    return NULL;
}
