/* What does not go with what: one table of pairs that a training refuses. It feeds the refusal, the
 * doctor, `darknet cmn list`, docs/reference and the tests. No other place asks whether two keys go
 * together. Everything here is local and the same on all ranks. */
#ifndef CMN_PAIRS_H
#define CMN_PAIRS_H

#include "config/options.h"

/* A trait is what a training is or has besides its keys. Whoever finds one out calls cmn_pairs_check_trait(). */
enum cmn_trait {
    CMN_NO_TRAIT,
    CMN_IS_ON_CPU,
    CMN_IS_ON_GPUS,
    CMN_LACKS_HOOKS,        /* built over AlexeyAB's tree, which calls only some */
    CMN_TRAINS_TEXT,        /* rnn train */
    CMN_TRAINS_EXACT_TEXT,  /* rnn train with cmn_exact=on */
    CMN_TRAINS_IN_MEMORY,   /* its samples are no files: cifar */
    CMN_TRAINS_OTHER_FILES, /* neither a classifier nor a detector */
    CMN_USES_ADAM,          /* adam=1 in the cfg */
    CMN_UPDATES_ITSELF,     /* the cfg has a key that only Darknet's own update obeys */
    CMN_AVERAGES_ITSELF,    /* the cfg has ema_alpha */
    CMN_LEARNS_IN_ORDER,    /* what a micro-batch does depends on the ones before it */
    CMN_SENDS_NOTHING,      /* the ranks are all on one node, and share memory */
    /* What the communicator cannot do. */
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
    const char *other;   /* the same; NULL: a trait */
    enum cmn_trait trait;
    const char *why, *instead; /* clauses: why they do not go together, and what to do */
};

/* The table: row i, or NULL behind the last one. */
const struct cmn_pair *cmn_pairs_at(int i);

/* Whether two keys that are set do not go together: 0, or -1 with a reason that names both, why they
 * do not go together, and what to do. */
int cmn_pairs_check(const struct cmn_options *o);

/* The same of the keys and a trait. `words` name it in the reason: "adam=1 in the cfg". */
int cmn_pairs_check_trait(const struct cmn_options *o, enum cmn_trait trait, const char *words);

/* The words for the row's other side in general, as documents print it. */
const char *cmn_pairs_other(const struct cmn_pair *pair);

#endif
