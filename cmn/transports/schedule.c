#include "transports/schedule.h"

#include "base/fatal.h"

static int rounds_one_by_one(int ranks)
{
    return ranks - 1;
}

/* Each round sends one block directly to its owner. */
static struct cmn_round round_pairwise(int ranks, int i)
{
    int distance = ranks - 1 - i;

    return (struct cmn_round){distance, distance, 1};
}

/* Each block travels around the ring, and each rank adds its own addend on the way. */
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

/* Before round i a rank still works on ⌈ranks / 2^i⌉ blocks, from its own on. The round halves
 * them: the upper half goes to the rank whose own block is the first of that half. */
static struct cmn_round round_halving(int ranks, int i)
{
    int all = (int)(((long)ranks + (1L << i) - 1) >> i), lower = (all + 1) / 2;

    return (struct cmn_round){lower, lower, all - lower};
}

static const struct cmn_schedule table[] = {
    [CMN_EXCHANGE_PAIRWISE] = {"pairwise",
                               "Thakur, Rabenseifner, Gropp, Optimization of Collective "
                               "Communication Operations in MPICH, 2005",
                               1, 0, rounds_one_by_one, round_pairwise},
    [CMN_EXCHANGE_HALVING] = {"halving",
                              "Rabenseifner, Optimization of Collective Reduction Operations, "
                              "2004; any number of ranks: Träff, Optimal, Non-pipelined "
                              "Reduce-scatter and Allreduce Algorithms, 2024",
                              0, 0, rounds_halving, round_halving},
    [CMN_EXCHANGE_RING] = {"ring",
                           "Patarasuk, Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters "
                           "of Workstations, 2009",
                           0, 1, rounds_one_by_one, round_ring},
};

const struct cmn_schedule *cmn_schedule_of(enum cmn_exchange_by by)
{
    if (by < CMN_EXCHANGE_PAIRWISE || by > CMN_EXCHANGE_RING) {
        cmn_fatal("exchange: algorithm %d has no rounds", (int)by);
    }
    return &table[by];
}

/* The algorithms send the same number of bytes; they differ in messages, rounds and distances.
 *
 * Up to 8 ranks, pairwise has at most 14 messages, which all begin together, and adds in the order
 * of the ranks. With more ranks, M, its 2(M - 1) messages cost more than the 2 log2(M) rounds of
 * halving, as long as a round has few bytes. Halving sends half of all bytes to a rank half-way
 * round the ranks, which is slow on a network with less bandwidth between its switches than below
 * them. A ring sends to the next rank only, but in 2(M - 1) rounds. Their latencies add 15 % to the
 * time of the bytes if sending a block takes 1 / 0.15 latencies. Latency times bandwidth is about
 * 64 KB both on Ethernet (50 us at 10 Gbit/s) and on faster networks (5 us at 100 Gbit/s), so such
 * a block has about 512 KiB. */
static const double RING_BLOCK = 512 * 1024;

enum cmn_exchange_by cmn_schedule_for(int ranks, double bytes)
{
    if (ranks <= CMN_SCHEDULE_FEW) {
        return CMN_EXCHANGE_PAIRWISE;
    }
    return bytes / ranks < RING_BLOCK ? CMN_EXCHANGE_HALVING : CMN_EXCHANGE_RING;
}
