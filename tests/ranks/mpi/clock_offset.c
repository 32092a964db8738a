#include "ranks/ranks.h"

#include <math.h>

#include "mpi/clock_offset.h"

/* The time of all ranks, in nanoseconds: it passes with each look at a clock, and is told to pass. So no other program of
 * this machine disturbs a measurement. */
static int64_t *now;
enum { LOOK_NS = 1000 };

static double pass(double seconds)
{
    return 1e-9 * (double)__atomic_add_fetch(now, (int64_t)(seconds * 1e9), __ATOMIC_SEQ_CST);
}

static double real_clock(void)
{
    return pass(1e-9 * LOOK_NS);
}

/* A false clock: this rank's is so far ahead of the real one, and gains so many seconds a
 * second. */
static double ahead, gain, since;
/* So long reading it takes from one time on until before another, but on rank 0's node. */
static double slow;
static int slow_from, slow_until;
static int node, reads;

static double clock_of_node(void)
{
    double time = real_clock();

    reads++;
    if (node > 0 && reads > slow_from && reads <= slow_until) {
        pass(slow);
    }
    return time + ahead + gain * (time - since);
}

static double of_rank_0(double time)
{
    MPI_Bcast(&time, 1, MPI_DOUBLE, 0, top.world);
    return time;
}

static void set_clock(const struct cmn_topology *t)
{
    since = of_rank_0(real_clock());
    node = t->inter_rank;
    ahead = 1000.0 * t->inter_rank * (t->inter_rank % 2 ? 1 : -1);
    gain =
        1e-3 * t->inter_rank; /* a thousand parts in a million: far more than any machine's clock */
}

/* How far this rank is from what rank 0's clock said when the real clock said `time`. */
static double error_at(const struct cmn_clock_offset *c, double time)
{
    double mine = time + ahead + gain * (time - since);

    return fabs(cmn_clock_offset_align(c, mine) - of_rank_0(mine));
}

/* Between two measurements, 100 ms apart. How far off this rank is at worst, and says that it
 * may be. */
static double measure_twice(const struct cmn_topology *t, double *claimed)
{
    struct cmn_clock_offset c;
    double begin, end, worst = 0;

    set_clock(t);
    cmn_clock_offset_open(&c, t, clock_of_node);
    reads = 0;
    cmn_clock_offset_measure(&c);
    begin = of_rank_0(real_clock());
    pass(0.1 / top.size);
    MPI_Barrier(top.world);
    end = of_rank_0(real_clock());
    reads = 0;
    cmn_clock_offset_measure(&c);
    CHECK(c.marks == 2);
    *claimed = fmax(c.mark[0].error, c.mark[1].error);
    for (int i = 0; i <= 10; i++) {
        worst = fmax(worst, error_at(&c, begin + (end - begin) * i / 10));
    }
    return worst;
}

/* Of many tries the quickest counts, so those that are disturbed do no harm, and a node that is
 * busy for a while is asked until it no longer is. */
static const struct {
    double slow;
    int from, until;
} disturbances[] = {{0, 0, 0}, {2e-3, 40, 1000000}, {2e-3, 0, 90}};

WORLD_TEST(aligned)
{
    for (size_t i = 0; i < COUNT(disturbances); i++) {
        double claimed, worst;
        slow = disturbances[i].slow;
        slow_from = disturbances[i].from;
        slow_until = disturbances[i].until;
        worst = measure_twice(t, &claimed);
        CHECK_SAYING(worst <= claimed + 1e-6, "%s, %zu: wrong by %.1f us, and %.1f us are claimed",
                     shape, i, worst * 1e6, claimed * 1e6);
        CHECK_SAYING(claimed <= 5e-5, "%s, %zu: %.1f us are claimed", shape, i, claimed * 1e6);
        CHECK_SAYING(t->inter_rank > 0 || worst < 1e-6, "%s, %zu: on node 0 by %.1f us", shape, i,
                     worst * 1e6);
    }
    slow = 0;
}

static double aligned_at(const struct cmn_clock_offset *c, double time)
{
    return time - cmn_clock_offset_align(c, time);
}

RANK_TEST(interpolates)
{
    struct cmn_clock_offset c = {.marks = 0};

    CHECK(aligned_at(&c, 17) == 0);
    cmn_clock_offset_add(&c, &(struct cmn_clock_mark){10, 4, 0});
    CHECK(aligned_at(&c, 0) == 4 && aligned_at(&c, 10) == 4 && aligned_at(&c, 99) == 4);
    cmn_clock_offset_add(&c, &(struct cmn_clock_mark){20, 5, 0});
    CHECK(aligned_at(&c, 0) == 4 && aligned_at(&c, 15) == 4.5 && aligned_at(&c, 20) == 5);
    CHECK(aligned_at(&c, 99) == 5);
    cmn_clock_offset_add(&c, &(struct cmn_clock_mark){20, 6, 0}); /* a clock that stands still */
    CHECK(aligned_at(&c, 15) == 4.5 && aligned_at(&c, 20) == 5 && aligned_at(&c, 21) == 6);
    for (int i = 3; i <= 100; i++) {
        cmn_clock_offset_add(&c, &(struct cmn_clock_mark){10 + 10 * i, 4 + i, 0});
        CHECK(aligned_at(&c, 10) == 4 && aligned_at(&c, 10 + 10 * i) == 4 + i);
        CHECK(i == 3 || aligned_at(&c, 5 + 10 * i) == 3.5 + i);
    }
    CHECK(c.marks == CMN_CLOCK_MARKS);
    for (int i = 1; i < c.marks; i++) {
        CHECK(c.mark[i].at > c.mark[i - 1].at);
    }
}

static MPI_Win window;

static void share_clock(void)
{
    MPI_Aint bytes;
    int unit;

    MPI_Win_allocate_shared(top.rank == 0 ? sizeof *now : 0, 1, MPI_INFO_NULL, top.world, &now,
                            &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &now);
    if (top.rank == 0) {
        *now = 0;
    }
    MPI_Barrier(top.world);
}

static void drop_clock(void)
{
    MPI_Win_free(&window);
}

RANK_TESTS(share_clock, drop_clock)
