/* Statistics of all ranks' values, against closed forms, on one node and on several that one
 * machine stands for. */
#include "ranks/ranks.h"

#include <math.h>

#include "engine/batch_norm.h"

enum { FILTERS = 1000 };

static double count, before, of_all; /* values of this rank, of the ranks before it, of all */
static double less;                  /* squares are divided by the values but this many */

/* What cmn_batch_norm_forward() is, or backward. */
typedef void pass(struct cmn_batch_norm *s, float *a, float *b, size_t n, double values);

#ifndef EXCHANGE /* tests/gpu/engine/batch_norm.c has both vectors on a GPU */
static void exchange(pass *it, struct cmn_batch_norm *norm, float *a, float *b, size_t n,
                     double values)
{
    it(norm, a, b, n, values);
}
#endif

/* Rank r has `first` + r values. Rank 0 may have a single one. */
static void split(int first)
{
    double r = top.rank, n = top.size;

    count = first + r;
    before = r * first + r * (r - 1) / 2;
    of_all = n * first + n * (n - 1) / 2;
}

/* Value k of all ranks' is start + slope * k. The starts are large and the slopes are not: sums
 * of squares would lose them. */
static double start(int filter)
{
    return 4096.0 * filter;
}

static double slope(int filter)
{
    return 1 + filter % 3;
}

static double mean_of(int filter, double from, double n)
{
    return start(filter) + slope(filter) * (from + (n - 1) / 2);
}

static double variance_of(int filter, double n)
{
    return slope(filter) * slope(filter) * n * (n * n - 1) / 12 / (n - less);
}

static int near(double is, double should)
{
    return fabs(is - should) <= 2e-7 * fabs(should);
}

static void forward(struct cmn_batch_norm *norm, int n, const char *where)
{
    float mean[FILTERS], variance[FILTERS];

    for (int i = 0; i < n; i++) {
        mean[i] = (float)mean_of(i, before, count);
        variance[i] = count > less ? (float)variance_of(i, count) : NAN;
    }
    exchange(cmn_batch_norm_forward, norm, mean, variance, (size_t)n, count);
    for (int i = 0; i < n && of_all > less; i++) {
        CHECK_SAYING(near(mean[i], mean_of(i, 0, of_all)), "%s: mean %d of %d: %g, not %g", where,
                     i, n, (double)mean[i], mean_of(i, 0, of_all));
        CHECK_SAYING(near(variance[i], variance_of(i, of_all)), "%s: variance %d of %d: %g, not %g",
                     where, i, n, (double)variance[i], variance_of(i, of_all));
    }
    CHECK_SAYING(same_everywhere(mean, (size_t)n * sizeof *mean), "%s", where);
    CHECK_SAYING(same_everywhere(variance, (size_t)n * sizeof *variance), "%s", where);
}

/* Sums over the ranks, for a caller who divides by its own count what is to be divided by that
 * of all. */
static void backward(struct cmn_batch_norm *norm, int n, const char *where)
{
    float a[FILTERS], b[FILTERS];
    double ranks = top.size * (top.size + 1) / 2.0, part = count / of_all;

    for (int i = 0; i < n; i++) {
        a[i] = (float)((i + 1) * (top.rank + 1));
        b[i] = (float)(-0.5 * (top.rank + 1) - i);
    }
    exchange(cmn_batch_norm_backward, norm, a, b, (size_t)n, count);
    for (int i = 0; i < n; i++) {
        CHECK_SAYING(near(a[i], (i + 1) * ranks * part), "%s: %d of %d: %g", where, i, n,
                     (double)a[i]);
        CHECK_SAYING(near(b[i], (-0.5 * ranks - i * top.size) * part), "%s: %d of %d: %g", where, i,
                     n, (double)b[i]);
    }
}

WORLD_TEST(closed_forms)
{
    struct cmn_topology here = *t;

    here.device = top.device;
    for (int way = 0; way < 4; way++) {
        struct cmn_batch_norm *norm;
        options.intra = way / 2 ? CMN_INTRA_MPI : CMN_INTRA_AUTO;
        less = way % 2;
        norm = cmn_batch_norm_open(&here, &options, FILTERS, less);
        /* Other sizes in between, so that what one exchange leaves would show in the next. */
        for (int turn = 0; turn < 6; turn++) {
            split(1 + turn * 3);
            forward(norm, turn % 2 ? 3 : FILTERS, shape);
            backward(norm, turn % 3 ? FILTERS : 1, shape);
        }
        cmn_batch_norm_close(norm);
    }
}

RANK_TEST(too_many)
{
    struct cmn_batch_norm *norm;
    float a[2] = {0}, b[2] = {0};

    options.intra = CMN_INTRA_AUTO;
    norm = cmn_batch_norm_open(&top, &options, 1, 1);
    CHECK_FATAL(cmn_batch_norm_forward(norm, a, b, 2, 1), "2 filters, room for 1", 0);
    cmn_batch_norm_close(norm);
}

#ifndef EXCHANGE /* nothing waits there */
/* Many exchanges in a row, in which ranks are late in turns: nobody reads what is not there
 * yet, or not there any more. */
RANK_TEST(many_in_a_row)
{
    struct cmn_batch_norm *norm;
    double sum = top.size * (top.size - 1) / 2.0;

    options.intra = CMN_INTRA_AUTO;
    norm = cmn_batch_norm_open(&top, &options, 2, 1);
    for (int turn = 0; turn < 500; turn++) {
        float a[2] = {(float)(turn + top.rank), 1}, b[2] = {0, (float)-turn};
        if (turn % 97 == top.rank) {
            usleep(1000);
        }
        cmn_batch_norm_backward(norm, a, b, 2, 1);
        CHECK_SAYING(near(a[0], turn + sum / top.size) && near(a[1], 1) && near(b[1], -turn),
                     "turn %d: %g %g %g", turn, (double)a[0], (double)a[1], (double)b[1]);
    }
    cmn_batch_norm_close(norm);
}

static int looks;

enum { LOOKED = 77 };

/* Rank 0 is told of the first one, and comes then. */
static void look(void *self)
{
    if (top.rank && looks == 0) {
        MPI_Send(NULL, 0, MPI_CHAR, 0, LOOKED, top.world);
    }
    looks += self == &looks;
}

static void refuse(void *self)
{
    (void)self;
    cmn_fatal("the background exchange failed");
}

/* The background exchange progresses while a rank waits; when it fails, so does the wait. The last
 * test: what it ends early is not finished. */
RANK_TEST(waiting)
{
    const long intra[] = {CMN_INTRA_AUTO, CMN_INTRA_MPI};

    for (size_t k = 0; k < COUNT(intra); k++) {
        struct cmn_batch_norm *norm;
        float a = 1, b = 1;
        options.intra = intra[k];
        norm = cmn_batch_norm_open(&top, &options, 1, 1);
        cmn_batch_norm_idle(norm, look, &looks);
        looks = 0;
        for (int i = 1; top.rank == 0 && i < top.size; i++) {
            MPI_Recv(NULL, 0, MPI_CHAR, i, LOOKED, top.world, MPI_STATUS_IGNORE);
        }
        cmn_batch_norm_backward(norm, &a, &b, 1, 1);
        CHECK_SAYING(top.rank == 0 || looks > 0, "%s", "nobody looked");
        MPI_Barrier(top.world);
        cmn_batch_norm_idle(norm, refuse, NULL);
        options.timeout = 20; /* of a wait in which nobody looks */
        if (top.rank != 0) {
            CHECK_FATAL(cmn_batch_norm_backward(norm, &a, &b, 1, 1),
                        "the background exchange failed", 0);
        }
        fail_on_all_ranks();
    }
}

#endif

RANK_TESTS(NULL, NULL)
