/* pairs: which keys and traits exclude each other. Local, and the same on all ranks.
 *
 * A training refuses each pair of one table. The table feeds the refusal, the doctor, `darknet cmn
 * list`, docs/reference and the tests. No other place asks whether two keys go together. */
#ifndef CMN_PAIRS_H
#define CMN_PAIRS_H

#include "config/options.h"

/* A trait is what a training is or has besides its keys. Code that finds out a trait calls
 * cmn_pairs_check_trait(). */
enum cmn_trait {
    CMN_NO_TRAIT,
    CMN_IS_ON_CPU,
    CMN_IS_ON_GPUS,
    CMN_LACKS_HOOKS,        /* built on AlexeyAB's tree, which calls only some hooks */
    CMN_LACKS_GPU_HOOKS,    /* the same on GPUs */
    CMN_TRAINS_IN_MEMORY,   /* its samples are not files: cifar */
    CMN_TRAINS_OTHER_FILES, /* neither a classifier nor a detector */
    CMN_USES_ADAM,          /* adam=1 in the cfg */
    CMN_UPDATES_ITSELF,     /* the cfg has a key that only Darknet's own update obeys */
    CMN_AVERAGES_ITSELF,    /* the cfg has ema_alpha */
    CMN_LEARNS_IN_ORDER,    /* a micro-batch depends on the ones before it */
    CMN_SENDS_NOTHING,      /* all ranks are on one node, and share memory */
    /* The communicator lacks these abilities. */
    CMN_CANNOT_CAST,
    CMN_CANNOT_COMPRESS,
    CMN_CANNOT_DELAY,
    CMN_CANNOT_OVERLAP,
    CMN_CANNOT_ORDER,
    CMN_SUMS_NOTHING,
    CMN_TRAITS
};

struct cmn_pair {
    const char *feature; /* a condition on a key: "key=word", "key!=word", or "key" (set) */
    const char *other;   /* another condition; NULL: a trait */
    enum cmn_trait trait;
    const char *why, *instead; /* clauses: why they exclude each other, and what to do */
};

/* Returns row i of the table, or NULL after the last one. */
const struct cmn_pair *cmn_pairs_at(int i);

/* Checks the pairs of two keys. Returns 0, or -1 with a reason that names both keys, why they
 * exclude each other, and what to do. */
int cmn_pairs_check(const struct cmn_options *o);

/* Checks the pairs of a key and `trait`, in the same way. `words` name the trait in the reason:
 * "adam=1 in the cfg". */
int cmn_pairs_check_trait(const struct cmn_options *o, enum cmn_trait trait, const char *words);

/* Returns the words by which documents name the row's other side. */
const char *cmn_pairs_other(const struct cmn_pair *pair);

#endif
