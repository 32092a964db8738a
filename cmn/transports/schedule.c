#include "transports/schedule.h"

#include "base/fatal.h"

/* A later algorithm is taken when it needs less than this part of the time (as in
 * communicators/selection.c). */
static const double FASTER = 0.85;

/* ---- the algorithms ---- */

static int rounds_one_by_one(int ranks)
{
    return ranks - 1;
}

/* Each block goes straight to its owner. */
static struct cmn_round round_pairwise(int ranks, int i)
{
    int distance = ranks - 1 - i;

    return (struct cmn_round){distance, distance, 1};
}

/* Each block goes round, and each rank adds its own on the way. */
static struct cmn_round round_ring(int ranks, int i)
{
    return (struct cmn_round){1, ranks - 1 - i, 1};
}

static int rounds_halving(int ranks)
{
    int rounds = 0;

    for (long reached = 1; reached < ranks; reached *= 2) {
        rounds++;
    }
    return rounds;
}

/* The blocks that a rank still has to do with, ⌈ranks / 2^i⌉ from its own on, are halved: the upper
 * half goes to the rank that begins there. */
static struct cmn_round round_halving(int ranks, int i)
{
    int all = (int)(((long)ranks + (1L << i) - 1) >> i), lower = (all + 1) / 2;

    return (struct cmn_round){lower, lower, all - lower};
}

static const struct cmn_schedule table[] = {
    [CMN_EXCHANGE_PAIRWISE] = {"pairwise",
                               "Thakur, Rabenseifner, Gropp, Optimization of Collective "
                               "Communication Operations in MPICH, 2005",
                               rounds_one_by_one, round_pairwise},
    [CMN_EXCHANGE_HALVING] = {"halving",
                              "Rabenseifner, Optimization of Collective Reduction Operations, "
                              "2004; any number of ranks: Träff, Optimal, Non-pipelined "
                              "Reduce-scatter and Allreduce Algorithms, 2024",
                              rounds_halving, round_halving},
    [CMN_EXCHANGE_RING] = {"ring",
                           "Patarasuk, Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters "
                           "of Workstations, 2009",
                           rounds_one_by_one, round_ring},
};

const struct cmn_schedule *cmn_schedule_of(enum cmn_exchange_by by)
{
    if (by < CMN_EXCHANGE_PAIRWISE || by > CMN_EXCHANGE_RING) {
        cmn_fatal("exchange: algorithm %d has no rounds", (int)by);
    }
    return &table[by];
}

/* ---- what they send, and how long that takes ---- */

struct cmn_schedule_count cmn_schedule_count(enum cmn_exchange_by by, int ranks)
{
    const struct cmn_schedule *s = cmn_schedule_of(by);
    struct cmn_schedule_count count = {0};

    for (int i = 0; i < s->rounds(ranks); i++) {
        struct cmn_round round = s->round(ranks, i);
        count.peers += 2;
        *(round.distance == 1 ? &count.near : &count.far) += 2L * round.blocks;
    }
    /* Pairwise begins all messages at once. */
    count.rounds = by == CMN_EXCHANGE_PAIRWISE && ranks > 1 ? 2 : count.peers;
    return count;
}

double cmn_schedule_seconds(enum cmn_exchange_by by, int ranks, double bytes,
                            const struct cmn_link *link)
{
    struct cmn_schedule_count count = cmn_schedule_count(by, ranks);
    double block = bytes / ranks, sent = block * (double)(count.near + count.far);
    double messages = (double)count.peers + sent / CMN_SCHEDULE_MESSAGE;

    return (double)count.rounds * (double)link->latency + messages * (double)link->message +
           block *
               ((double)count.near * (double)link->near + (double)count.far * (double)link->far);
}

enum cmn_exchange_by cmn_schedule_best(int ranks, double bytes, const struct cmn_link *link)
{
    enum cmn_exchange_by best = CMN_EXCHANGE_PAIRWISE;
    double least = FASTER * cmn_schedule_seconds(best, ranks, bytes, link);

    for (int by = CMN_EXCHANGE_HALVING; by <= CMN_EXCHANGE_RING && ranks > CMN_SCHEDULE_FEW; by++) {
        double seconds = cmn_schedule_seconds((enum cmn_exchange_by)by, ranks, bytes, link);
        if (seconds < least) {
            best = (enum cmn_exchange_by)by;
            least = seconds;
        }
    }
    return best;
}
