/* Selection of the communicator: the one that is asked for, or, with `auto`, the best one that
 * works.
 *
 * On one node, and on GPUs, the best one is known beforehand; on the CPU it is tried once, because
 * shared memory can be short. On several nodes the link decides, so a benchmark times a few
 * exchanges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "communicators/communicator.h"
#include "communicators/overlapped_allreduce.h"
#include "config/pairs.h"
#include "mpi/call.h"

/* The candidates of `auto`, best first. */
static const char *const preferred[] = {
    "shm", "pure_nccl", "single_node", "two_dimensional", "hierarchical", "flat",
};

enum { PREFERRED = sizeof preferred / sizeof preferred[0], FLOATS = 1024 * 1024, METRICS = 16 };

/* The benchmark spends SPEND seconds on a communicator. A later candidate is chosen if it needs
 * less than FASTER of the time of the best one before it: with a smaller difference the choice
 * would change from one start to the next. */
static const double SPEND = 0.05, FASTER = 0.85;

static const struct cmn_communicator *named(const char *name)
{
    const struct cmn_communicator *c = cmn_communicator_find(name);
    char known[512] = "auto";

    for (int i = 0; !c && cmn_communicator_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", cmn_communicator_at(i)->name);
    }
    if (!c) {
        cmn_fail("unknown communicator %s: known are: %s", name, known);
    }
    return c;
}

/* Collective. Returns whether `mine` is true on all ranks. */
static int on_all(const struct cmn_topology *t, int mine)
{
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT, MPI_MIN, t->world));
    return mine;
}

/* Returns the seconds of an exchange on the slowest rank: the best of a few. */
static double time_exchanges(const struct cmn_communicator *c, void *self,
                             const struct cmn_topology *t, const struct cmn_exchange *x)
{
    double best = 0, spent = 0;
    int most = t->inter_size > 1 ? 8 : 1;

    for (int call = 0; call < most && (call < 2 || spent < SPEND); call++) {
        double began = cmn_clock(), seconds;
        c->allreduce(self, x);
        seconds = cmn_clock() - began;
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, t->world));
        spent += seconds;
        if (call <= 1 || seconds < best) { /* the first one is for warming up */
            best = seconds;
        }
    }
    return best;
}

const char *cmn_communicator_no_begin(const struct cmn_communicator *c, void *self)
{
    if (!c->begin) {
        return "it cannot exchange in the background";
    }
    return c->no_begin ? c->no_begin(self) : NULL;
}

/* Opens c, exchanges 4 MiB a few times and closes it. Returns the seconds of an exchange, or -1
 * with a reason if c cannot be used; *how then says in a word or two what happened. */
static double benchmark(const struct cmn_communicator *c, const struct cmn_topology *t,
                        const struct cmn_options *o, const char **how)
{
    float *block = NULL, *own = NULL;
    void *self = NULL;
    double seconds = -1;
    int opened = c->open(&self, c, t, o) == 0;

    *how = "failed";
    if (!on_all(t, opened)) {
        return -1; /* a failed open must not be closed */
    }
    /* On one node nothing overlaps, which is reported elsewhere. */
    if (o->overlap == CMN_OVERLAP_ON && t->inter_size > 1 && cmn_communicator_no_begin(c, self)) {
        cmn_fail("cmn_overlap=on: communicator %s: %s", c->name,
                 cmn_communicator_no_begin(c, self));
        *how = "cannot overlap";
    } else if (on_all(t, !c->memory || c->memory(self, FLOATS + METRICS, &block) == 0)) {
        block = block ? block : (own = cmn_alloc_floats(FLOATS + METRICS));
        struct cmn_span whole = {.data = block, .n = FLOATS};
        struct cmn_exchange x = {.tensor = &whole,
                                 .tensors = 1,
                                 .block = whole,
                                 .metrics = {.data = block + FLOATS, .n = METRICS}};
        seconds = time_exchanges(c, self, t, &x);
    }
    c->close(self);
    free(own);
    return seconds;
}

/* All candidates refuse: records why. */
static void all_refuse(const struct cmn_topology *t, const struct cmn_options *o)
{
    const struct cmn_communicator *c = cmn_communicator_find("pure_nccl");
    char why[512];

    if (t->device >= 0) {
        snprintf(why, sizeof why, "%s", cmn_communicator_refuses(c, t, o));
        cmn_fail("no communicator works on these GPUs: %s: %s", c->name, why);
    } else {
        cmn_fail("no communicator works here: name one with cmn_communicator to see why not");
    }
}

/* Used if no benchmark is needed. */
static const struct cmn_communicator *first_that_works(const struct cmn_topology *t,
                                                       const struct cmn_options *o)
{
    const struct cmn_communicator *c = cmn_communicator_find("flat");

    if (t->size == 1 && t->device < 0 && !cmn_communicator_refuses(c, t, o)) {
        return c;
    }
    for (int i = 0; i < PREFERRED; i++) {
        c = cmn_communicator_find(preferred[i]);
        if (c && !cmn_communicator_refuses(c, t, o)) {
            return c;
        }
    }
    all_refuse(t, o);
    return NULL;
}

/* On one node. Returns the key because of which shm refuses: one about messages, which shm does not
 * send. Returns NULL if there is none. */
static const char *key_of_messages(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (!cmn_overlap_refuses_nodes(t, o)) {
        return NULL;
    }
    return o->compress != CMN_COMPRESS_OFF ? "cmn_compress" : "cmn_double_buffering";
}

/* Returns, of the candidates that do not refuse, the first one that works, or, on several nodes,
 * the fastest. *why becomes the explanation. Returns NULL with a reason if there is none. */
static const struct cmn_communicator *best_by_benchmark(const struct cmn_topology *t,
                                                        const struct cmn_options *o, char *why,
                                                        size_t bytes)
{
    const struct cmn_communicator *best = NULL;
    const char *key;
    double least = 0;
    char others[256] = "";

    for (int i = 0; i < PREFERRED && !(best && t->inter_size == 1); i++) {
        const struct cmn_communicator *c = cmn_communicator_find(preferred[i]);
        const char *how;
        double seconds;
        size_t used = strlen(others);
        if (!c || cmn_communicator_refuses(c, t, o)) {
            continue;
        }
        seconds = benchmark(c, t, o, &how);
        if (seconds < 0) {
            snprintf(others + used, sizeof others - used, ", %s %s", c->name, how);
        } else if (!best || seconds < FASTER * least) {
            if (best) {
                snprintf(others + used, sizeof others - used, ", %s %.1f", best->name, 1e3 * least);
            }
            best = c;
            least = seconds;
        } else {
            snprintf(others + used, sizeof others - used, ", %s %.1f", c->name, 1e3 * seconds);
        }
    }
    if (!best && !others[0]) {
        all_refuse(t, o);
    } else if (!best) {
        cmn_fail_in("no communicator works here; the last one tried");
    } else if (t->inter_size == 1) {
        key = key_of_messages(t, o);
        snprintf(why, bytes, "auto: one node%s%s%s", key ? ", and shm sends no messages for " : "",
                 key ? key : "", others);
    } else {
        snprintf(why, bytes, "auto: %d nodes, 4 MiB in %.1f ms%s", t->inter_size, 1e3 * least,
                 others);
    }
    return best;
}

/* Checks whether the keys ask for something that this communicator cannot do. Returns 0, or -1 with
 * a reason. */
static int check_keys(const struct cmn_communicator *c, const struct cmn_topology *t,
                      const struct cmn_options *o)
{
    const unsigned can = c->can[t->device >= 0];
    const struct {
        int lacks;
        enum cmn_trait trait;
    } traits[] = {
        {!(can & CMN_ORDERS), CMN_CANNOT_ORDER},
        {!(can & CMN_CASTS), CMN_CANNOT_CAST},
        {!(can & CMN_COMPRESSES), CMN_CANNOT_COMPRESS},
        {!(can & CMN_DELAYS), CMN_CANNOT_DELAY},
        {!c->begin, CMN_CANNOT_OVERLAP},
        {!c->sums, CMN_SUMS_NOTHING},
    };
    char name[64];

    snprintf(name, sizeof name, "communicator %s", c->name);
    for (size_t i = 0; i < sizeof traits / sizeof traits[0]; i++) {
        if (traits[i].lacks && cmn_pairs_check_trait(o, traits[i].trait, name)) {
            return -1;
        }
    }
    return 0;
}

const char *cmn_communicator_refuses(const struct cmn_communicator *c, const struct cmn_topology *t,
                                     const struct cmn_options *o)
{
    return check_keys(c, t, o) ? cmn_reason() : c->refuses ? c->refuses(c, t, o) : NULL;
}

const struct cmn_communicator *cmn_communicator_choose(const struct cmn_topology *t,
                                                       const struct cmn_options *o,
                                                       const char **why)
{
    static _Thread_local char text[512];
    const struct cmn_communicator *c;
    const char *refusal;
    char reason[512] = "";

    *why = "as asked";
    if (strcmp(o->communicator, "auto")) {
        c = named(o->communicator);
        if (!c || check_keys(c, t, o)) {
            return NULL;
        }
        refusal = cmn_communicator_refuses(c, t, o);
        if (refusal) {
            snprintf(reason, sizeof reason, "%s", refusal);
            cmn_fail("communicator %s cannot be used here: %s", c->name, reason);
            return NULL;
        }
        return c;
    }
    *why = text;
    if (t->size == 1 || t->device >= 0) {
        snprintf(text, sizeof text, t->size == 1 ? "auto: one rank" : "auto: GPUs");
        return first_that_works(t, o);
    }
    return best_by_benchmark(t, o, text, sizeof text);
}
