/* Measures the bound of a perceptron's step: OpenBLAS computes only its matrix products, on every
 * rank at once.
 *
 *     mpiexec -n RANKS products IMAGES STEPS INPUTS OUTPUTS [OUTPUTS...]
 *
 * IMAGES are those of a rank in a step. Each layer has the number before it as its inputs. The
 * products are those that Darknet calls: forward x w^T, the gradient of the weights delta^T x, and,
 * except for the first layer, delta w. Rank 0 prints the images a second of all ranks, in the time
 * of the slowest one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>

enum { LAYERS = 16, WARM_UP = 5 };

static float *memory(int rows, int columns)
{
    size_t n = (size_t)rows * (size_t)columns;
    float *x = malloc(n * sizeof *x);

    if (!x) {
        fputs("products: no memory\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(i * 7919 % 1000) / 1000 - 0.5F;
    }
    return x;
}

static void product(CBLAS_TRANSPOSE a_is, CBLAS_TRANSPOSE b_is, int m, int n, int k, float *a,
                    float *b, float beta, float *c)
{
    cblas_sgemm(CblasRowMajor, a_is, b_is, m, n, k, 1, a, a_is == CblasTrans ? m : k, b,
                b_is == CblasTrans ? k : n, beta, c, n);
}

int main(int argc, char **argv)
{
    int size[LAYERS + 1], layers = argc - 4, rank, ranks, images, steps;
    float *x[LAYERS + 1], *delta[LAYERS + 1], *weights[LAYERS], *gradient[LAYERS];
    double seconds = 0, slowest;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (layers < 1 || layers > LAYERS) {
        fputs("usage: products IMAGES STEPS INPUTS OUTPUTS [OUTPUTS...]\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    images = atoi(argv[1]);
    steps = atoi(argv[2]);
    for (int i = 0; i <= layers; i++) {
        size[i] = atoi(argv[3 + i]);
        x[i] = memory(images, size[i]);
        delta[i] = memory(images, size[i]);
    }
    for (int i = 0; i < layers; i++) {
        weights[i] = memory(size[i + 1], size[i]);
        gradient[i] = memory(size[i + 1], size[i]);
    }
    for (int step = -WARM_UP; step < steps; step++) {
        if (step == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            seconds = MPI_Wtime();
        }
        for (int i = 0; i < layers; i++) {
            product(CblasNoTrans, CblasTrans, images, size[i + 1], size[i], x[i], weights[i], 0,
                    x[i + 1]);
        }
        for (int i = layers - 1; i >= 0; i--) {
            product(CblasTrans, CblasNoTrans, size[i + 1], size[i], images, delta[i + 1], x[i], 0,
                    gradient[i]);
            if (i > 0) {
                product(CblasNoTrans, CblasNoTrans, images, size[i], size[i + 1], delta[i + 1],
                        weights[i], 0, delta[i]);
            }
        }
    }
    seconds = MPI_Wtime() - seconds;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%g\n", (double)steps * images * ranks / slowest);
    }
    MPI_Finalize();
    return 0;
}
