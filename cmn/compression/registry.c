/* The list of compressors: selection, `darknet cmn list`, docs and tests use it. */
#include "compression/compressor.h"

extern const struct cmn_compressor cmn_compressor_none, cmn_compressor_fp16, cmn_compressor_bf16,
    cmn_compressor_powersgd;

static const struct cmn_compressor *const registry[] = {
    [CMN_COMPRESS_OFF] = &cmn_compressor_none,
    [CMN_COMPRESS_FP16] = &cmn_compressor_fp16,
    [CMN_COMPRESS_BF16] = &cmn_compressor_bf16,
    [CMN_COMPRESS_POWERSGD] = &cmn_compressor_powersgd,
};

enum { COMPRESSORS = sizeof registry / sizeof registry[0] };

const struct cmn_compressor *cmn_compressor_at(int i)
{
    return i >= 0 && i < COMPRESSORS ? registry[i] : NULL;
}

const struct cmn_compressor *cmn_compressor_wanted(const struct cmn_options *o)
{
    return registry[o->compress];
}
