#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DETAILS = 4, HOST = 64 };

struct fake_comm {
    MPI_Comm mpi;
    int rank, size, device;
    pthread_t owner;     /* the thread that may call MPI */
    ncclResult_t state;  /* what went wrong at the start */
    int ended;           /* it is aborted */
    long calls;          /* operations so far */
    int under_way;       /* of them */
    cudaStream_t stream; /* of the last one */
    struct fake_comm *next;
};

static MPI_Comm world = MPI_COMM_WORLD; /* a program that knows nothing of us starts nothing */
static struct fake_comm *comms;         /* all that ever were: work may refer to them */

void fake_start(MPI_Comm from)
{
    memset(&fake, 0, sizeof fake);
    MPI_Comm_dup(from, &world);
}

void fake_end(void)
{
    MPI_Comm_free(&world);
}

/* ---- communicators ---- */

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

/* Two ranks on one GPU, as NCCL tells GPUs apart: by host, and by bus. */
static ncclResult_t refuse_duplicates(const struct fake_comm *c)
{
    struct {
        int bus;
        char host[HOST];
    } mine = {fake_bus(c->device), ""}, *all = calloc((size_t)c->size, sizeof *all);
    const char *host = getenv("NCCL_HOSTID");
    int twice = 0;

    snprintf(mine.host, sizeof mine.host, "%s", host ? host : "");
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, c->mpi);
    for (int i = 0; i < c->size; i++) {
        for (int k = 0; k < i; k++) {
            twice |= !memcmp(&all[i], &all[k], sizeof mine);
        }
    }
    free(all);
    return twice ? ncclInvalidUsage : ncclSuccess;
}

/* The id names the rank that made it; there all who come with it meet. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    int name[2], *members;
    struct fake_comm *c;
    MPI_Group all, mine;

    if (getenv("FAKE_NO_NCCL")) {
        fake_die("NCCL was opened by a command that exchanges nothing by it");
    }
    members = calloc((size_t)ranks, sizeof *members);
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
    c = calloc(1, sizeof *c);
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, ranks, members, &mine);
    MPI_Comm_create_group(world, mine, 2000 + name[1], &c->mpi);
    MPI_Group_free(&all);
    MPI_Group_free(&mine);
    free(members);
    c->rank = rank;
    c->size = ranks;
    c->device = fake_current("ncclCommInitRank");
    c->owner = pthread_self();
    c->state = refuse_duplicates(c);
    fake_lock();
    c->next = comms;
    comms = c;
    fake.alive++;
    fake_unlock();
    *comm = c;
    return fake.state ? fake.state : c->state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    fake_lock();
    *state = fake.state && fake.calls_to_failure-- <= 0 ? fake.state : comm->state;
    fake_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    fake_lock();
    if (comm->under_way) {
        fake_die("ncclCommDestroy of a communicator that has work");
    }
    comm->ended = 1;
    MPI_Comm_free(&comm->mpi);
    fake.alive--;
    fake_unlock();
    return ncclSuccess;
}

/* What runs on the GPU ends, undone. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    fake_lock();
    fake.aborts++;
    fake.alive -= !fake.abort_hangs;
    comm->ended = !fake.abort_hangs;
    fake_unlock();
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
    return comm->state == ncclInvalidUsage ? "Duplicate GPU detected" : "fake details";
}

/* ---- operations ---- */

/* First what each rank calls, then what it has. */
static void start(struct fake_work *w)
{
    long *all = malloc(sizeof *all * DETAILS * (size_t)w->comm->size);
    const long mine[DETAILS] = {w->number, w->gathers, w->type, (long)w->n};

    memcpy(all + DETAILS * w->comm->rank, mine, sizeof mine);
    w->room = (float *)all;
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, DETAILS, MPI_LONG, w->comm->mpi,
                   &w->request);
}

static void compare(const struct fake_work *w)
{
    static const char *const kinds[] = {"allreduce", "allgather"};
    const long *all = (const long *)w->room, *mine = all + DETAILS * w->comm->rank;

    for (int r = 0; r < w->comm->size; r++) {
        const long *other = all + DETAILS * r;
        if (memcmp(mine, other, DETAILS * sizeof *mine)) {
            fake_die("NCCL: rank %d of %d calls %s number %ld, type %ld, of %ld, and rank %d %s "
                     "number %ld, type %ld, of %ld",
                     w->comm->rank, w->comm->size, kinds[mine[1]], mine[0], mine[2], mine[3], r,
                     kinds[other[1]], other[0], other[2], other[3]);
        }
    }
}

static size_t floats_to(const struct fake_work *w)
{
    return w->n * (w->gathers ? (size_t)w->comm->size : 1);
}

/* A sum gathers what all ranks have. Until it is done, what was there is gone. */
static void exchange(struct fake_work *w)
{
    size_t n = w->n, at = n * (size_t)w->comm->rank;

    free(w->room);
    w->room = malloc(n * sizeof *w->room * (size_t)w->comm->size + 1);
    for (size_t i = 0; i < n; i++) {
        w->room[at + i] = fake_widen(w->from, i, w->type);
    }
    for (size_t i = 0; i < floats_to(w); i++) {
        fake_narrow(w->to, i, -777.0F, w->type);
    }
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->room, (int)n, MPI_FLOAT, w->comm->mpi,
                   &w->request);
}

/* As a ring adds: each of its parts begins with another rank, and each sum is rounded. */
static float ring_sum(const struct fake_work *w, size_t i)
{
    size_t size = (size_t)w->comm->size, n = w->n, first = i * size / n + 1;
    float sum = w->room[first % size * n + i], rounded;

    for (size_t k = 1; k < size; k++) {
        sum += w->room[(first + k) % size * n + i];
        fake_narrow(&rounded, 0, sum, w->type);
        sum = fake_widen(&rounded, 0, w->type);
    }
    return sum;
}

static int run_nccl(struct fake_work *w)
{
    int done = 0;

    if (w->comm->ended) {
        return 1;
    }
    if (fake.stuck || !pthread_equal(pthread_self(), w->comm->owner)) {
        return 0;
    }
    if (w->started == 0) {
        start(w);
        w->started = 1;
    }
    MPI_Test(&w->request, &done, MPI_STATUS_IGNORE);
    if (done && w->started == 1) {
        compare(w);
        exchange(w);
        w->started = 2;
        MPI_Test(&w->request, &done, MPI_STATUS_IGNORE);
    }
    for (size_t i = 0; i < floats_to(w) && done; i++) {
        fake_narrow(w->to, i, w->gathers ? w->room[i] : ring_sum(w, i), w->type);
    }
    if (done) {
        free(w->room);
        w->comm->under_way--;
    }
    return done;
}

/* Two communicators that work at a time on streams without an order between them may keep each other
 * from the GPU for ever, on one rank the first and on another one the second. */
static void require_order(const struct fake_comm *mine, cudaStream_t stream)
{
    for (const struct fake_comm *c = comms; c; c = c->next) {
        if (c->under_way && !c->ended && c->stream != stream) {
            fake_die("NCCL: %s on two streams at a time",
                     c == mine ? "a communicator" : "two communicators");
        }
    }
}

static ncclResult_t make(struct fake_work work, const void *from, void *to, cudaStream_t stream)
{
    struct fake_comm *c = work.comm;
    size_t bytes = work.n * (work.type == ncclFloat32 ? sizeof(float) : sizeof(short));
    const char *connects = getenv("NCCL_RUNTIME_CONNECT");

    if (!connects || strcmp(connects, "0")) {
        fake_die("%s connects the ranks: NCCL_RUNTIME_CONNECT is not 0", work.what);
    }
    if (!stream || !fake_is_urgent(stream)) {
        fake_die("%s on a stream that waits behind Darknet's kernels", work.what);
    }
    work.run = run_nccl;
    work.from = fake_device(from, bytes, work.what);
    work.to = fake_device(to, bytes * (work.gathers ? (size_t)c->size : 1), work.what);
    if (c->device != fake_current(work.what)) {
        return ncclInvalidUsage;
    }
    fake_lock();
    require_order(c, stream);
    work.number = c->calls++;
    c->under_way++;
    c->stream = stream;
    fake_queue(stream, &work);
    fake_unlock();
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return make(
        (struct fake_work){.what = "ncclAllReduce", .n = n, .type = (int)type, .comm = comm}, from,
        to, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return make(
        (struct fake_work){
            .what = "ncclAllGather", .n = n, .type = (int)type, .comm = comm, .gathers = 1},
        from, to, stream);
}
