#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORK = 64, TAKEN_US = 300, DETAILS = 6, HOST = 64 }; /* work in a group */
enum { TO_ALL = -1, GATHERED = -2, SCATTERED = -3 };        /* roots that are none */

/* What ranks must agree on, in the order of struct details. */
static const char *const kinds[] = {"allreduce", "reduce", "broadcast", "allgather",
                                    "reduce_scatter"};

struct registration {
    struct fake_comm *comm;
    const void *at;
    size_t bytes;
    struct registration *next;
};

struct fake_comm {
    MPI_Comm mpi;
    int rank, size, device;
    pthread_t owner;    /* the thread that may call MPI */
    ncclResult_t state; /* what went wrong at the start */
    int busy, ended;    /* has something to take; is aborted */
    int grouped;        /* and the group is not yet complete */
    int asked;          /* questions until it may be done */
    long calls;         /* operations so far */
    int under_way;      /* of them */
    struct registration *registered;
    struct fake_work given[WORK];
    cudaStream_t stream;
    int n;
    struct fake_comm *next;
};

static MPI_Comm world = MPI_COMM_WORLD; /* a program that knows nothing of us starts nothing */
static _Thread_local int groups_open;
static struct fake_comm *comms; /* all that ever were: work may refer to them */
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;
static int wanted, started;
static long calls_of_all; /* operations of all communicators */

void fake_start(MPI_Comm from)
{
    memset(&fake, 0, sizeof fake);
    MPI_Comm_dup(from, &world);
}

void fake_end(void)
{
    MPI_Comm_free(&world);
}

/* ---- the thread that takes what NCCL was given ---- */

static void take(struct fake_comm *c)
{
    if (c->n) {
        cudaSetDevice(c->device);
    }
    for (int i = 0; i < c->n; i++) {
        fake_queue(c->stream, &c->given[i]);
    }
    c->n = c->busy = 0;
}

static void *take_all(void *none)
{
    (void)none;
    for (;;) {
        unsigned us;
        pthread_mutex_lock(&waking);
        while (!wanted) {
            pthread_cond_wait(&given, &waking);
        }
        wanted = 0;
        pthread_mutex_unlock(&waking);
        fake_lock();
        us = fake_random(2) ? 0 : fake_random(TAKEN_US);
        fake_unlock();
        usleep(us);
        fake_lock();
        for (struct fake_comm *c = comms; c; c = c->next) {
            if (c->busy && !c->grouped) {
                take(c);
            }
        }
        fake_unlock();
    }
    return NULL;
}

/* Whoever asks then is told "in progress" a few times more. */
static ncclResult_t later(struct fake_comm *c)
{
    pthread_t thread;

    c->busy = 1;
    c->asked = (int)fake_random(3);
    pthread_mutex_lock(&waking);
    wanted = 1;
    if (!started && !pthread_create(&thread, NULL, take_all, NULL)) {
        pthread_detach(thread);
        started = 1;
    }
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&waking);
    return ncclInProgress;
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

/* Two ranks on one GPU, where NCCL cannot know that this is meant so. */
static ncclResult_t refuse_duplicates(const struct fake_comm *c)
{
    struct {
        int hardware;
        char host[HOST];
    } mine = {fake_hardware(c->device), ""}, *all = calloc((size_t)c->size, sizeof *all);
    const char *host = getenv("NCCL_HOSTID"), *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int twice = 0;

    snprintf(mine.host, sizeof mine.host, "%s", host ? host : "");
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, c->mpi);
    for (int i = 0; i < c->size; i++) {
        for (int k = 0; k < i; k++) {
            twice |= !memcmp(&all[i], &all[k], sizeof mine);
        }
    }
    free(all);
    return twice && !(several && !strcmp(several, "1")) ? ncclInvalidUsage : ncclSuccess;
}

/* The id names the rank that made it; there all who come with it meet. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int name[2], *members;
    struct fake_comm *c;
    MPI_Group all, mine;

    if (config->blocking != 0) {
        return ncclInvalidUsage;
    }
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
    c->device = fake_current("ncclCommInitRankConfig");
    c->owner = pthread_self();
    c->state = refuse_duplicates(c);
    fake_lock();
    c->next = comms;
    comms = c;
    fake.alive++;
    later(c);
    fake_unlock();
    *comm = c;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    fake_lock();
    if (fake.state && fake.calls_to_failure-- <= 0) {
        *state = fake.state;
    } else if (comm->busy || comm->asked-- > 0) {
        *state = ncclInProgress;
    } else {
        *state = comm->state;
    }
    fake_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    fake_lock();
    later(comm);
    fake_unlock();
    return ncclInProgress;
}

/* ---- memory ---- */

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    if (fake.no_nccl_memory || cudaMalloc(memory, bytes) != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    fake_lock();
    fake_of_nccl(*memory);
    fake_unlock();
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory)
{
    fake_free(memory, 1, 1, "ncclMemFree");
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    struct registration *r = calloc(1, sizeof *r);

    if (comm->ended || comm->device != fake_current("ncclCommRegister")) {
        fake_die("ncclCommRegister with a communicator that is aborted, or of another GPU");
    }
    *r = (struct registration){comm, memory, bytes, comm->registered};
    fake_lock();
    fake_register(memory, bytes, 1, "ncclCommRegister");
    if (fake.no_registration || getenv("FAKE_NO_REGISTRATION")) {
        fake_register(memory, bytes, -1, "ncclCommRegister");
        free(r);
        fake_unlock();
        return ncclUnhandledCudaError;
    }
    comm->registered = r;
    fake.alive++;
    fake.registered++;
    fake_unlock();
    *handle = r;
    return ncclSuccess;
}

static void end_registration(struct registration **at)
{
    struct registration *r = *at;

    *at = r->next;
    fake_register(r->at, r->bytes, -1, "ncclCommDeregister");
    fake.alive--;
    fake.registered--;
    free(r);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    fake_lock();
    if (comm->under_way) {
        fake_die("ncclCommDeregister while %d operations of this communicator are under way",
                 comm->under_way);
    }
    for (struct registration **at = &comm->registered; *at; at = &(*at)->next) {
        if (*at == handle) {
            end_registration(at);
            fake_unlock();
            return ncclSuccess;
        }
    }
    fake_die("ncclCommDeregister of what this communicator does not have");
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    fake_lock();
    if (comm->registered) {
        fake_die("ncclCommDestroy of a communicator that still has registered memory");
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
    while (comm->registered && !fake.abort_hangs) {
        end_registration(&comm->registered);
    }
    comm->n = comm->busy = 0;
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

ncclResult_t ncclGroupStart(void)
{
    groups_open++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--groups_open < 0) {
        return ncclInvalidUsage;
    }
    fake_lock();
    for (struct fake_comm *c = comms; c && groups_open == 0; c = c->next) {
        if (c->grouped) {
            c->grouped = 0;
            later(c);
        }
    }
    fake_unlock();
    return ncclInProgress;
}

/* ---- operations ---- */

/* First what each rank calls, then what it has. */
static void start(struct fake_work *w)
{
    long *all = malloc(sizeof *all * DETAILS * (size_t)w->comm->size);
    long *mine = all + DETAILS * w->comm->rank;

    mine[0] = w->number;
    mine[1] = w->broadcast ? 2 : w->root == GATHERED ? 3 : w->root == SCATTERED ? 4 : w->root >= 0;
    mine[2] = w->type;
    mine[3] = (long)w->n;
    mine[4] = w->root;
    mine[5] = w->order;
    w->room = (float *)all;
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, DETAILS, MPI_LONG, w->comm->mpi,
                   &w->request);
}

static void compare(const struct fake_work *w)
{
    const long *all = (const long *)w->room, *mine = all + DETAILS * w->comm->rank;

    for (int r = 0; r < w->comm->size; r++) {
        const long *other = all + DETAILS * r;
        if (memcmp(mine, other, DETAILS * sizeof *mine)) {
            fake_die("NCCL: rank %d of %d calls %s number %ld, type %ld, of %ld to or from %ld, "
                     "as %ld of all, and rank %d %s number %ld, type %ld, of %ld to or from %ld, "
                     "as %ld",
                     w->comm->rank, w->comm->size, kinds[mine[1]], mine[0], mine[2], mine[3],
                     mine[4], mine[5], r, kinds[other[1]], other[0], other[2], other[3], other[4],
                     other[5]);
        }
    }
}

static size_t floats_to(const struct fake_work *w)
{
    return w->n * (w->root == GATHERED ? (size_t)w->comm->size : 1);
}

static size_t floats_from(const struct fake_work *w)
{
    return w->n * (w->root == SCATTERED ? (size_t)w->comm->size : 1);
}

/* A sum gathers what all ranks have. Until it is done, what was there is gone, and of a reduce_scatter
 * in place the other ranks' slices for good. */
static void exchange(struct fake_work *w)
{
    size_t n = floats_from(w), at = w->broadcast ? 0 : n * (size_t)w->comm->rank;

    free(w->room);
    w->room = malloc(n * sizeof *w->room * (size_t)(w->broadcast ? 1 : w->comm->size) + 1);
    for (size_t i = 0; i < n; i++) {
        w->room[at + i] = fake_widen(w->from, i, w->type);
    }
    for (size_t i = 0; i < n && w->root == SCATTERED && w->in_place; i++) {
        fake_narrow(w->from, i, -777.0F, w->type);
    }
    for (size_t i = 0; i < floats_to(w) && !(w->broadcast && w->root == w->comm->rank); i++) {
        fake_narrow(w->to, i, -777.0F, w->type);
    }
    if (w->broadcast) {
        MPI_Ibcast(w->room, (int)w->n, MPI_FLOAT, w->root, w->comm->mpi, &w->request);
    } else {
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->room, (int)n, MPI_FLOAT, w->comm->mpi,
                       &w->request);
    }
}

/* As a ring adds: each of its parts begins with another rank, and each sum is rounded. */
static float ring_sum(const struct fake_work *w, size_t i)
{
    size_t size = (size_t)w->comm->size, n = floats_from(w), first = i * size / n + 1;
    float sum = w->room[first % size * n + i], rounded;

    for (size_t k = 1; k < size; k++) {
        sum += w->room[(first + k) % size * n + i];
        fake_narrow(&rounded, 0, sum, w->type);
        sum = fake_widen(&rounded, 0, w->type);
    }
    return sum;
}

static float result(const struct fake_work *w, size_t i)
{
    if (w->broadcast || w->root == GATHERED) {
        return w->room[i];
    }
    if (w->root == SCATTERED) {
        return ring_sum(w, w->n * (size_t)w->comm->rank + i);
    }
    /* What is undefined afterwards is made useless, so that nobody comes to count on it. */
    return w->root < 0 || w->root == w->comm->rank ? ring_sum(w, i) : -777.0F;
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
        fake_narrow(w->to, i, result(w, i), w->type);
    }
    if (done) {
        free(w->room);
        w->comm->under_way--;
    }
    return done;
}

static ncclResult_t give(struct fake_work *work, cudaStream_t stream)
{
    struct fake_comm *c = work->comm;
    ncclResult_t code = ncclInvalidUsage;

    fake_lock();
    if (c->device == fake_current(work->what) && c->n < WORK && (!c->busy || c->grouped) &&
        (!c->n || c->stream == stream)) {
        work->number = c->calls++;
        c->under_way++;
        work->order = getenv("FAKE_ONE_ORDER") ? calls_of_all++ : 0;
        c->given[c->n++] = *work;
        c->stream = stream;
        c->grouped = groups_open > 0;
        c->busy = 1;
        code = c->grouped ? ncclInProgress : later(c);
    }
    fake_unlock();
    return code;
}

/* NCCL allows a slice of the whole in the same memory, where it is the rank's own. */
static int is_in_place(const char *whole, const char *slice, size_t bytes, ncclComm_t comm,
                       const char *what)
{
    size_t all = bytes * (size_t)comm->size;

    if (slice == whole + bytes * (size_t)comm->rank) {
        return 1;
    }
    if (slice + bytes > whole && slice < whole + all) {
        fake_die("%s: the slice lies in the whole, and not where that of rank %d is", what,
                 comm->rank);
    }
    return 0;
}

static ncclResult_t make(const void *from, void *to, size_t n, int type, int root, int broadcast,
                         const char *what, ncclComm_t comm, cudaStream_t stream)
{
    struct fake_work work = {.run = run_nccl, .what = what, .n = n, .type = type, .root = root};
    size_t bytes = n * (type == ncclFloat32 ? sizeof(float) : sizeof(short));

    work.broadcast = broadcast;
    work.comm = comm;
    if (!stream || !fake_is_urgent(stream)) {
        fake_die("%s on a stream that waits behind Darknet's kernels", what);
    }
    if (root == GATHERED || root == SCATTERED) {
        work.in_place = is_in_place(root == GATHERED ? to : from, root == GATHERED ? from : to,
                                    bytes, comm, what);
    }
    work.from = fake_device(from, bytes * (root == SCATTERED ? (size_t)comm->size : 1), what);
    work.to = fake_device(to, bytes * (root == GATHERED ? (size_t)comm->size : 1), what);
    return give(&work, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    fake.allreduces += (long)n;
    return make(from, to, n, (int)type, TO_ALL, 0, "ncclAllReduce", comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return make(from, to, n, (int)type, GATHERED, 0, "ncclAllGather", comm, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    fake.scattered += (long)n * comm->size;
    return make(from, to, n, (int)type, SCATTERED, 0, "ncclReduceScatter", comm, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    fake.reductions += (long)n;
    return make(from, to, n, (int)type, root, 0, "ncclReduce", comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return make(from, to, n, (int)type, root, 1, "ncclBroadcast", comm, stream);
}
