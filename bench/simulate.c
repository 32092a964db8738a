/* Sums a step's gradients between nodes by cmn/'s own code (transports/sums.c), in simulated time by
 * SimGrid's MPI, or in real time by a real MPI.
 *
 * Each rank of a node owns a part of every tensor, as two_dimensional and shm have it, and sums it
 * with the owners of the other nodes. All do so at the same time. A rank computes for STEP_MS: a
 * third of it forward, then backward, layer by layer from the last one, each in proportion to its
 * operations. The gradients of a layer whose backward pass has ended are summed meanwhile, and the
 * rank looks after its messages every LOOK_MS. Additions, casts and what happens within a node take
 * no simulated time.
 *
 * LAYERS has a line "FLOATS OPERATIONS" for each layer, in the order of the forward pass.
 * ALGORITHM is pairwise, halving, ring or auto, each with /fp16 or /bf16 behind it.
 * Prints the milliseconds of each of CALLS steps. With `link` as ALGORITHM it prints CALLS times the
 * microseconds of the latency, and of a message.
 * bench/simulate.sh and bench/simulate-check.sh compile and start it. */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transports/sums.h"

enum { LAYERS = 512, PENDING = 1024 };

/* These are in the order of enum cmn_exchange_by: config/options.c does not compile with smpicc. */
static const char *const names[] = {"auto", "pairwise", "halving", "ring"};

struct layer {
    size_t n; /* floats of this rank's part */
    double operations;
};

static struct layer layer[LAYERS];
static int layers;
static double operations;

/* ---- waiting in simulated time ---- */

#ifdef SMPI_SHARED_MALLOC
/* A loop that tests again and again would cost the simulator an event each time, and the simulated
 * cost of a test would decide the result. So requests that were tested in vain are kept, and where
 * the loop yields the processor, the rank sleeps until one of them ends. */
static MPI_Request *pending[PENDING];
static int pendings;

int cmn_simulated_testall(int count, MPI_Request *request, int *all, MPI_Status *statuses)
{
    int result = PMPI_Testall(count, request, all, statuses);

    for (int i = 0; !*all && i < count && pendings < PENDING; i++) {
        if (request[i] != MPI_REQUEST_NULL) {
            pending[pendings++] = &request[i];
        }
    }
    return result;
}

int cmn_simulated_yield(void)
{
    MPI_Request copy[PENDING];
    int ended;

    for (int i = 0; i < pendings; i++) {
        copy[i] = *pending[i];
    }
    if (pendings) {
        PMPI_Waitany(pendings, copy, &ended, MPI_STATUS_IGNORE);
        *pending[ended] = MPI_REQUEST_NULL;
    }
    pendings = 0;
    return 0;
}
#else
#define SMPI_SHARED_MALLOC(bytes) calloc(1, bytes)
#define SMPI_SHARED_FREE(memory) free(memory)
static int pendings;
#endif

/* ---- a step ---- */

struct step {
    struct cmn_sums *sums;
    enum cmn_dtype dtype;
    float *data;
    int ranks;
    long begun;
    double computes, looks; /* seconds */
};

static void read_layers(const char *name, int owners)
{
    FILE *file = fopen(name, "r");
    double n, took;

    while (file && layers < LAYERS && fscanf(file, "%lf %lf", &n, &took) == 2) {
        layer[layers++] = (struct layer){(size_t)(n / owners), took};
        operations += took;
    }
    if (!layers) {
        fprintf(stderr, "simulate: %s: no layers\n", name);
        exit(2);
    }
    fclose(file);
}

static long progress(struct step *s, long until)
{
    long ended = cmn_sums_progress(s->sums, until);

    pendings = 0;
    return ended;
}

static void begin(struct step *s, const struct layer *l)
{
    const struct cmn_sum sum = {.data = s->data, .n = l->n, .dtype = s->dtype};

    cmn_sums_begin(s->sums, &sum);
    s->begun++;
    progress(s, 0);
}

static void compute(struct step *s, double seconds)
{
    for (double left = seconds; left > 1e-9; left -= s->looks) {
        usleep((useconds_t)(1e6 * (left < s->looks ? left : s->looks)));
        if (s->begun) {
            progress(s, 0);
        }
    }
}

static double run(struct step *s)
{
    double seconds;

    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    compute(s, s->computes / 3);
    for (int i = layers - 1; i >= 0; i--) {
        compute(s, s->computes * 2 / 3 * layer[i].operations / operations);
        begin(s, &layer[i]);
    }
    progress(s, s->begun);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - seconds;
}

/* ---- the network ---- */

enum { TAG = 3, TIMES = 5, BURST = 32, SMALL = 8 };

/* Returns the seconds in which every rank sends `messages` of a few bytes half way round, and gets
 * as many. The best of a few attempts of the slowest rank counts. */
static double shift(MPI_Comm comm, int messages)
{
    char memory[2 * BURST][SMALL] = {{0}};
    MPI_Request request[2 * BURST];
    double best = 0;
    int rank, ranks;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    for (int i = 0; i < TIMES; i++) {
        double seconds;
        MPI_Barrier(comm);
        seconds = MPI_Wtime();
        for (int k = 0; k < messages; k++) {
            MPI_Irecv(memory[k], SMALL, MPI_BYTE, (rank - ranks / 2 + ranks) % ranks, TAG, comm,
                      &request[2 * k]);
            MPI_Isend(memory[BURST + k], SMALL, MPI_BYTE, (rank + ranks / 2) % ranks, TAG, comm,
                      &request[2 * k + 1]);
        }
        MPI_Waitall(2 * messages, request, MPI_STATUSES_IGNORE);
        seconds = MPI_Wtime() - seconds;
        if (i <= 1 || seconds < best) { /* the first one only warms up */
            best = seconds;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE, MPI_MAX, comm);
    return best;
}

static void measure(MPI_Comm comm, int calls)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < calls; i++) {
        double one = shift(comm, 1), burst = shift(comm, BURST);
        if (rank == 0) {
            printf("%.2f %.2f\n", 1e6 * one, burst > one ? 1e6 * (burst - one) / (BURST - 1) : 0);
        }
    }
}

static int exchange_of(struct step *s, struct cmn_options *o, char *name)
{
    char *type = strchr(name, '/');

    s->dtype = !type ? CMN_FP32 : !strcmp(type, "/bf16") ? CMN_BF16 : CMN_FP16;
    if (type) {
        *type = 0;
    }
    while (o->exchange <= CMN_EXCHANGE_RING && strcmp(names[o->exchange], name)) {
        o->exchange++;
    }
    return o->exchange <= CMN_EXCHANGE_RING || !strcmp(name, "link");
}

int main(int argc, char **argv)
{
    struct cmn_options o;
    struct step s = {0};
    MPI_Comm between;
    int rank, owners;
    size_t most = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cmn_log_identity(rank, "");
    memset(&o, 0, sizeof o);
    if (argc != 7 || (owners = atoi(argv[2])) < 1 || !exchange_of(&s, &o, argv[3])) {
        fprintf(stderr, "simulate LAYERS RANKS_OF_A_NODE ALGORITHM STEP_MS LOOK_MS CALLS\n");
        return 2;
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank % owners, rank, &between);
    MPI_Comm_size(between, &s.ranks);
    if (!strcmp(argv[3], "link")) {
        measure(between, atoi(argv[6]));
        MPI_Finalize();
        return 0;
    }
    read_layers(argv[1], owners);
    s.computes = 1e-3 * atof(argv[4]);
    s.looks = 1e-3 * atof(argv[5]);
    for (int i = 0; i < layers; i++) {
        most = layer[i].n > most ? layer[i].n : most;
    }
    s.data = SMPI_SHARED_MALLOC((most + 1) * sizeof *s.data);
    s.sums = cmn_sums_open(between, &o, 1);
    for (int i = 0; i < atoi(argv[6]); i++) {
        double seconds = run(&s);
        if (rank == 0) {
            printf("%.3f\n", 1e3 * seconds);
        }
    }
    cmn_sums_close(s.sums);
    SMPI_SHARED_FREE(s.data);
    MPI_Finalize();
    return 0;
}
