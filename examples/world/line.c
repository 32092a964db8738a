/* Fits the line y = a x + b to a file with two columns, on any number of ranks: an example of
 * what a program of your own can do with darknet-cmn's library. README.md says how to compile
 * and start it.
 *
 * Rank 0 reads the file and gives it to all; each rank adds up its share; the means over all
 * ranks give the line; each rank looks for the worst point of its share. */
#include <mpi.h> /* before cmn.h: for cmn_world_comm() */

#include <cmn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct points {
    size_t n;
    float *xy; /* x and y in turn */
};

/* Any rank may call cmn_fatal: it says one line with rank and host, and ends all of them. */
static struct points read_points(const char *name)
{
    struct points p = {0, NULL};
    FILE *file = fopen(name, "r");
    size_t room = 0;
    float x, y;

    if (!file) {
        cmn_fatal("the file of points cannot be read");
    }
    while (fscanf(file, "%f %f", &x, &y) == 2) {
        if (p.n == room) {
            room = 2 * room + 1024;
            p.xy = realloc(p.xy, 2 * room * sizeof *p.xy);
            if (!p.xy) {
                cmn_fatal("out of memory");
            }
        }
        p.xy[2 * p.n] = x;
        p.xy[2 * p.n + 1] = y;
        p.n++;
    }
    if (!feof(file) || p.n < 2) {
        cmn_fatal("the file of points must hold two numbers a line, and two lines at least");
    }
    fclose(file);
    return p;
}

static void share(struct points *p)
{
    cmn_broadcast(&p->n, sizeof p->n);
    if (cmn_get_world().rank != 0) {
        p->xy = malloc(2 * p->n * sizeof *p->xy);
        if (!p->xy) {
            cmn_fatal("out of memory");
        }
    }
    cmn_broadcast(p->xy, 2 * p->n * sizeof *p->xy);
}

/* Means over all points: of x and y; with a centre of x * x and x * y, both counted from there. */
static void means(const struct points *p, const float *centre, float mean[2])
{
    struct cmn_world world = cmn_get_world();
    double sum[2] = {0, 0};

    for (size_t i = (size_t)world.rank; i < p->n; i += (size_t)world.size) {
        double x = p->xy[2 * i] - (centre ? centre[0] : 0);
        double y = p->xy[2 * i + 1] - (centre ? centre[1] : 0);
        sum[0] += centre ? x * x : x;
        sum[1] += centre ? x * y : y;
    }
    for (int i = 0; i < 2; i++) {
        mean[i] = (float)(sum[i] / (double)p->n * world.size);
    }
    cmn_mean(mean, 2); /* over the ranks, which have one share each */
}

int main(int argc, char **argv)
{
    struct points p = {0, NULL};
    struct cmn_world world;
    float centre[2], square[2]; /* means of x, y; and of xx, xy as seen from there */
    float a, b, worst = 0;

    cmn_start();
    world = cmn_get_world();
    if (argc != 2) {
        cmn_fatal("usage: mpiexec -n N line POINTS");
    }
    if (world.rank == 0) {
        p = read_points(argv[1]);
    }
    share(&p);

    means(&p, NULL, centre);
    means(&p, centre, square);
    a = square[1] / square[0];
    b = centre[1] - a * centre[0];

    for (size_t i = (size_t)world.rank; i < p.n; i += (size_t)world.size) {
        worst = fmaxf(worst, fabsf(a * p.xy[2 * i] + b - p.xy[2 * i + 1]));
    }
    /* What cmn.h has no call for, MPI has. */
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_FLOAT, MPI_MAX, cmn_world_comm());
    if (world.rank == 0) {
        printf("y = %.3f x + %.3f, off by %.3f at most; %zu points on %d rank%s of %d node%s\n", a,
               b, worst, p.n, world.size, world.size > 1 ? "s" : "", world.inter_size,
               world.inter_size > 1 ? "s" : "");
    }
    free(p.xy);
    return 0;
}
