/* The one list of codecs: it feeds the choice, `darknet cmn list`, docs and tests. */
#include <string.h>

#include "codecs/codec.h"
#include "log.h"

extern const struct cmn_codec cmn_codec_none, cmn_codec_fp16, cmn_codec_bf16, cmn_codec_topk,
    cmn_codec_powersgd;

static const struct cmn_codec *const table[] = {
    &cmn_codec_none, &cmn_codec_fp16, &cmn_codec_bf16, &cmn_codec_topk, &cmn_codec_powersgd,
};

enum { CODECS = sizeof table / sizeof table[0] };

const struct cmn_codec *cmn_codec_at(int i)
{
    return i >= 0 && i < CODECS ? table[i] : NULL;
}

const struct cmn_codec *cmn_codec_wanted(const struct cmn_options *o)
{
    const char *name = cmn_options_word(o, "cmn_compress");

    if (o->compress != CMN_COMPRESS_NONE && o->dtype != CMN_FP32) {
        cmn_fail("cmn_compress and cmn_allreduce_dtype are both set: take one of them");
        return NULL;
    }
    if (o->compress == CMN_COMPRESS_NONE) {
        name = o->dtype == CMN_FP32 ? "none" : cmn_options_word(o, "cmn_allreduce_dtype");
    }
    for (int i = 0; i < CODECS; i++) {
        if (!strcmp(table[i]->name, name)) {
            return table[i];
        }
    }
    cmn_fail("%s is no codec", name);
    return NULL;
}
