#include "config/pairs.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const char one_of_them[] = "remove one of them",
                  can_exchange[] = "use flat, hierarchical or two_dimensional, or remove "
                                   "cmn_communicator";

/* The first row that holds is reported. */
static const struct cmn_pair table[] = {
    {"cmn_exact=on", NULL, CMN_IS_ON_GPUS, "NCCL's order of adding follows the number of ranks",
     "train on the CPU (-nogpu), or remove cmn_exact"},
    {"cmn_exact=on", "cmn_batch=per_rank", CMN_NO_TRAIT,
     "more ranks would train with a larger batch", "set cmn_batch=global"},
    {"cmn_exact=on", "cmn_scatter!=global", CMN_NO_TRAIT, "other ranks would draw other images",
     "remove cmn_scatter"},
    {"cmn_exact=on", "cmn_sync_bn=on", CMN_NO_TRAIT, "it divides each micro-batch over the ranks",
     one_of_them},
    {"cmn_exact=on", "cmn_compress!=off", CMN_NO_TRAIT, "what is rounded depends on the ranks",
     one_of_them},
    {"cmn_exact=on", "cmn_local_steps", CMN_NO_TRAIT, "each rank trains weights of its own",
     one_of_them},
    {"cmn_exact=on", "cmn_double_buffering=on", CMN_NO_TRAIT, "a step's sum is used in that step",
     one_of_them},
    {"cmn_exact=on", NULL, CMN_LEARNS_IN_ORDER,
     "each micro-batch is trained by what the ones before it have shown", one_of_them},
    {"cmn_exact=on", NULL, CMN_CANNOT_ORDER, "it has no sum in a fixed order", can_exchange},

    {"cmn_nonfinite=skip", "cmn_local_steps", CMN_NO_TRAIT, "each rank updates by itself",
     "use cmn_nonfinite=stop"},
    {"cmn_nonfinite=skip", "cmn_overlap=on", CMN_NO_TRAIT,
     "it decides before anything is exchanged", "remove cmn_overlap"},
    {"cmn_lars", NULL, CMN_USES_ADAM, "Adam has a learning rate for each weight", one_of_them},
    {"cmn_lars", NULL, CMN_UPDATES_ITSELF,
     "Darknet's own update has one learning rate for all tensors", one_of_them},
    {"cmn_lars", "cmn_local_steps", CMN_NO_TRAIT, "each rank updates by itself", one_of_them},
    {"cmn_clip", "cmn_local_steps", CMN_NO_TRAIT, "each rank updates by itself", one_of_them},
    {"cmn_sync_bn=on", "cmn_local_steps", CMN_NO_TRAIT,
     "each rank trains weights of its own, which have no statistics in common", one_of_them},
    {"cmn_local_steps", NULL, CMN_USES_ADAM, "Adam's moments would be each rank's own",
     one_of_them},
    {"cmn_local_steps", NULL, CMN_SUMS_NOTHING, "it needs a mean", "use another communicator"},
    {"cmn_ema", NULL, CMN_AVERAGES_ITSELF, "they are two averages of the weights", one_of_them},

    {"cmn_overlap=on", "cmn_double_buffering=on", CMN_NO_TRAIT,
     "a step's exchange begins when its backward pass has ended", "remove cmn_overlap"},
    {"cmn_overlap=on", "cmn_local_steps", CMN_NO_TRAIT, "no gradients are exchanged",
     "remove cmn_overlap"},
    {"cmn_overlap=on", NULL, CMN_CANNOT_OVERLAP, "it cannot exchange in the background",
     can_exchange},
    {"cmn_double_buffering=on", NULL, CMN_CANNOT_DELAY, "it cannot exchange in the background",
     can_exchange},
    {"cmn_compress=fp16", NULL, CMN_CANNOT_CAST, "it sends 32 bits", can_exchange},
    {"cmn_compress=bf16", NULL, CMN_CANNOT_CAST, "it sends 32 bits", can_exchange},
    {"cmn_compress=powersgd", NULL, CMN_CANNOT_COMPRESS, "it sends gradients as they are",
     can_exchange},

    {"cmn_compress!=off", NULL, CMN_SENDS_NOTHING,
     "nothing is sent that a compressor could make smaller",
     "remove cmn_compress, or use flat, which sends all the same"},
    {"cmn_double_buffering=on", NULL, CMN_SENDS_NOTHING,
     "there is no link whose time could be hidden",
     "remove cmn_double_buffering, or use flat, which sends all the same"},

    {"cmn_balance=auto", NULL, CMN_LACKS_HOOKS, "its loader cannot follow", "remove cmn_balance"},
    {"cmn_balance=auto", NULL, CMN_TRAINS_IN_MEMORY,
     "it assigns images of classifiers and detectors", "remove cmn_balance"},
    {"cmn_data=scatter", NULL, CMN_TRAINS_OTHER_FILES,
     "it sends images and labels of classifiers and detectors",
     "give every host the files (cmn_data=shared)"},
    {"cmn_mixed=bf16", NULL, CMN_LACKS_GPU_HOOKS, "it has half precision of its own",
     "remove cmn_mixed, and build with CUDNN_HALF=1 (docs/use/gpu.md)"},
    {"cmn_mixed=auto", NULL, CMN_IS_ON_GPUS, "it measures the products of processors",
     "use cmn_mixed=bf16, or remove it"},
    {"cmn_mixed=auto", "cmn_exact=on", CMN_NO_TRAIT, "what it chooses depends on measured times",
     "use cmn_mixed=bf16, or remove it"},
};

enum { PAIRS = sizeof table / sizeof table[0] };

/* The words by which documents name each trait. */
static const char *const traits[CMN_TRAITS] = {
    [CMN_IS_ON_CPU] = "the CPU",
    [CMN_IS_ON_GPUS] = "GPUs",
    [CMN_LACKS_HOOKS] = "AlexeyAB's tree",
    [CMN_LACKS_GPU_HOOKS] = "AlexeyAB's tree on GPUs",
    [CMN_TRAINS_IN_MEMORY] = "samples that lie in memory (`cifar train`)",
    [CMN_TRAINS_OTHER_FILES] = "commands other than classifier and detector",
    [CMN_USES_ADAM] = "adam=1 in the cfg",
    [CMN_UPDATES_ITSELF] = "keys that only Darknet's own update obeys (AlexeyAB's, on GPUs)",
    [CMN_AVERAGES_ITSELF] = "ema_alpha in the cfg",
    [CMN_LEARNS_IN_ORDER] = "badlabels_rejection_percentage and its like in the cfg",
    [CMN_SENDS_NOTHING] = "shared memory, all ranks on one node",
    [CMN_CANNOT_CAST] = "communicators that send 32 bits",
    [CMN_CANNOT_COMPRESS] = "communicators that do not compress",
    [CMN_CANNOT_DELAY] = "communicators that block",
    [CMN_CANNOT_OVERLAP] = "communicators that block",
    [CMN_CANNOT_ORDER] = "communicators without a fixed order",
    [CMN_SUMS_NOTHING] = "communicator dummy",
};

const struct cmn_pair *cmn_pairs_at(int i)
{
    return i < PAIRS ? &table[i] : NULL;
}

const char *cmn_pairs_other(const struct cmn_pair *pair)
{
    return pair->other ? pair->other : traits[pair->trait];
}

/* Writes the key of a condition with its current value: "key=value". */
static void print_key(const struct cmn_options *o, const char *condition, char text[2 * CMN_TEXT])
{
    int length = (int)strcspn(condition, "!=");
    char key[64], value[CMN_TEXT];

    snprintf(key, sizeof key, "%.*s", length, condition);
    cmn_options_value(o, key, value, sizeof value);
    snprintf(text, 2 * CMN_TEXT, "%s=%s", key, value);
}

/* Checks the rows of one trait, or with CMN_NO_TRAIT those of two keys. */
static int check(const struct cmn_options *o, enum cmn_trait trait, const char *words)
{
    char feature[2 * CMN_TEXT], other[2 * CMN_TEXT];

    for (int i = 0; i < PAIRS; i++) {
        const struct cmn_pair *p = &table[i];
        if (p->trait != trait || !cmn_options_holds(o, p->feature) ||
            (p->other && !cmn_options_holds(o, p->other))) {
            continue;
        }
        print_key(o, p->feature, feature);
        if (p->other) {
            print_key(o, p->other, other);
        }
        return cmn_fail("%s does not go with %s: %s: %s", feature, p->other ? other : words, p->why,
                        p->instead);
    }
    return 0;
}

int cmn_pairs_check(const struct cmn_options *o)
{
    return check(o, CMN_NO_TRAIT, NULL);
}

int cmn_pairs_check_trait(const struct cmn_options *o, enum cmn_trait trait, const char *words)
{
    return check(o, trait, words);
}
