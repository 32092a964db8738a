#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUESTIONS = 3, WORK = 64 }; /* before NCCL has taken what it was given; work in a group */

struct fake_comm {
    MPI_Comm mpi;
    int rank, size, questions; /* questions: still to be asked */
    struct fake_work given[WORK];
    cudaStream_t stream;
    int n;
};

static MPI_Comm world = MPI_COMM_WORLD; /* a program that knows nothing of us starts nothing */
static int groups_open;

void fake_start(MPI_Comm from)
{
    memset(&fake, 0, sizeof fake);
    MPI_Comm_dup(from, &world);
}

void fake_end(void)
{
    MPI_Comm_free(&world);
}

/* What device.c asks of Open MPI. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return fake.mpi_knows_gpus;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int number;
    int name[2] = {0, number++ % 1000};

    MPI_Comm_rank(world, &name[0]);
    memcpy(id->internal, name, sizeof name);
    return ncclSuccess;
}

/* The id names the rank that made it; there all who come with it meet. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int name[2], *members = calloc((size_t)ranks, sizeof *members);
    MPI_Group all, mine;

    if (config->blocking != 0) {
        return ncclInvalidUsage;
    }
    memcpy(name, id.internal, sizeof name);
    MPI_Comm_rank(world, &members[rank]);
    if (rank == 0) {
        for (int i = 1; i < ranks; i++) {
            int who[2];
            MPI_Recv(who, 2, MPI_INT, MPI_ANY_SOURCE, name[1], world, MPI_STATUS_IGNORE);
            members[who[0]] = who[1];
        }
        for (int i = 1; i < ranks; i++) {
            MPI_Send(members, ranks, MPI_INT, members[i], name[1], world);
        }
    } else {
        int who[2] = {rank, members[rank]};
        MPI_Send(who, 2, MPI_INT, name[0], name[1], world);
        MPI_Recv(members, ranks, MPI_INT, name[0], name[1], world, MPI_STATUS_IGNORE);
    }
    *comm = calloc(1, sizeof **comm);
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, ranks, members, &mine);
    MPI_Comm_create_group(world, mine, 2000 + name[1], &(*comm)->mpi);
    MPI_Group_free(&all);
    MPI_Group_free(&mine);
    free(members);
    (*comm)->rank = rank;
    (*comm)->size = ranks;
    (*comm)->questions = QUESTIONS;
    fake.alive++;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (fake.state && fake.calls_to_failure-- <= 0) {
        *state = fake.state;
        return ncclSuccess;
    }
    *state = comm->questions > 0 && --comm->questions > 0 ? ncclInProgress : ncclSuccess;
    for (int i = 0; i < comm->n && *state == ncclSuccess; i++) {
        fake_queue(comm->stream, &comm->given[i]);
    }
    comm->n = *state == ncclSuccess ? 0 : comm->n;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->questions = QUESTIONS;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    MPI_Comm_free(&comm->mpi);
    free(comm);
    fake.alive--;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    (void)comm;
    fake.aborts++;
    fake.alive -= !fake.abort_hangs;
    while (fake.abort_hangs) {
        pause();
    }
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError ? "fake remote error" : "fake NCCL error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "fake details";
}

ncclResult_t ncclGroupStart(void)
{
    groups_open++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    groups_open--;
    return ncclInProgress;
}

/* A sum gathers what all ranks have. */
static void start(struct fake_work *w)
{
    size_t at = w->broadcast ? 0 : w->n * (size_t)w->comm->rank;

    w->started = 1;
    w->room = malloc(w->n * sizeof *w->room * (size_t)(w->broadcast ? 1 : w->comm->size));
    for (size_t i = 0; i < w->n; i++) {
        w->room[at + i] = fake_widen(fake_address(w->from), i, w->type);
    }
    if (w->broadcast) {
        MPI_Ibcast(w->room, (int)w->n, MPI_FLOAT, w->root, w->comm->mpi, &w->request);
    } else {
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->room, (int)w->n, MPI_FLOAT,
                       w->comm->mpi, &w->request);
    }
}

/* As a ring adds: each of its parts begins with another rank. */
static float ring_sum(const struct fake_work *w, size_t i)
{
    size_t size = (size_t)w->comm->size, first = i * size / w->n + 1;
    float sum = w->room[first % size * w->n + i];

    for (size_t k = 1; k < size; k++) {
        sum += w->room[(first + k) % size * w->n + i];
    }
    return sum;
}

static float result(const struct fake_work *w, size_t i)
{
    if (w->broadcast) {
        return w->room[i];
    }
    /* What is undefined afterwards is made useless, so that nobody comes to count on it. */
    return w->root < 0 || w->root == w->comm->rank ? ring_sum(w, i) : -777.0F;
}

static int run_nccl(struct fake_work *w)
{
    int done = 0;

    if (fake.stuck) {
        return 0;
    }
    if (!w->started) {
        start(w);
    }
    MPI_Test(&w->request, &done, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < w->n && done; i++) {
        fake_narrow(fake_address(w->to), i, result(w, i), w->type);
    }
    if (done) {
        free(w->room);
    }
    return done;
}

static ncclResult_t give(const struct fake_work *work, cudaStream_t stream)
{
    struct fake_comm *c = work->comm;

    if (c->n == WORK || (c->n && c->stream != stream) || (c->n && groups_open <= 0)) {
        return ncclInvalidUsage;
    }
    c->given[c->n++] = *work;
    c->stream = stream;
    c->questions = QUESTIONS;
    return ncclInProgress;
}

static ncclResult_t make(const void *from, void *to, size_t n, int type, int root, int broadcast,
                         ncclComm_t comm, cudaStream_t stream)
{
    struct fake_work work = {.run = run_nccl, .to = to, .from = (void *)from, .n = n};

    work.type = type;
    work.root = root;
    work.broadcast = broadcast;
    work.comm = comm;
    return give(&work, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return make(from, to, n, (int)type, -1, 0, comm, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return make(from, to, n, (int)type, root, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return make(from, to, n, (int)type, root, 1, comm, stream);
}
