/* exchange [-cmn_KEY VALUE]... FLOATS CALLS NAME[,NAME...] [die|freeze RANK CALL]
 *
 * Exchanges FLOATS floats CALLS times with each of the named communicators, in turn, as a
 * training would, and checks every sum. Prints one line "NAME SECONDS" a call (the slowest
 * rank's), or "NAME refuses: reason". Besides:
 *   all every communicator that sums
 *   raw one MPI_Allreduce over all ranks, in place, in plain memory
 *   send rank 0 sends the floats to a rank of another node (or the last rank) and hears that they
 *   are there;
 *         summed by nobody
 * With `die` or `freeze`, that rank gets SIGKILL or SIGSTOP in the middle of that call (counted
 * from 0) and, where EXCHANGE_FOLDER is set, each rank first writes rank-N there: its process id,
 * then the files in /dev/shm that it has mapped. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

#include "communicators/communicator.h"
#include "base/fatal.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/topology.h"

enum { CANDIDATES = 32, TENSORS = 4, METRICS = 16, ALIGN = 16 };

struct candidate {
    char name[32];
    const struct cmn_communicator *with; /* NULL: raw, send */
    void *self;
    float *memory;
    int memory_is_ours;
    struct cmn_span tensor[TENSORS];
    struct cmn_exchange x;
};

static struct cmn_topology top;
static struct cmn_options options;
static struct candidate field[CANDIDATES];
static int candidates;
static atomic_int inside; /* an exchange */
static int armed;         /* a rank is about to fail */
static int to;            /* the rank that `send` sends to */
static double fastest = 1;
static int fault = SIGKILL;

/* As a training ends: one line with rank and host. */
static void end_job(const char *message, int lost)
{
    char prefix[128];

    (void)lost;
    cmn_log_prefix(prefix, sizeof prefix);
    fprintf(stderr, "%s%s\n", prefix, message);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int result)
{
    if (result < 0) {
        cmn_fatal_reason();
    }
}

static void cut(struct candidate *c, size_t floats)
{
    size_t at = 0;

    for (int i = 0; i < TENSORS; i++) {
        size_t end = i + 1 < TENSORS ? floats / TENSORS * ((size_t)i + 1) / ALIGN * ALIGN : floats;
        c->tensor[i] = (struct cmn_span){.data = c->memory + at, .n = end - at};
        at = end;
    }
    at = (floats + ALIGN - 1) / ALIGN * ALIGN;
    c->x.tensor = c->tensor;
    c->x.tensors = TENSORS;
    c->x.block = (struct cmn_span){.data = c->memory, .n = at};
    c->x.metrics = (struct cmn_span){.data = c->memory + at, .n = METRICS};
}

static void enter(const char *name, const struct cmn_communicator *with, size_t floats)
{
    size_t n = (floats + ALIGN - 1) / ALIGN * ALIGN + METRICS;
    struct candidate *c = &field[candidates];

    if (candidates == CANDIDATES) {
        check(cmn_fail("more than %d communicators", CANDIDATES));
    }
    snprintf(c->name, sizeof c->name, "%s", name);
    c->with = with;
    if (with) {
        const char *why = cmn_communicator_refuses(with, &top, &options);
        if (why) {
            if (top.rank == 0) {
                printf("%s refuses: %s\n", name, why);
            }
            return;
        }
        check(with->open(&c->self, with, &top, &options));
    }
    if (with && with->memory) {
        check(with->memory(c->self, n, &c->memory));
    }
    c->memory_is_ours = !c->memory;
    if (c->memory_is_ours) {
        c->memory = cmn_alloc_floats(n);
    }
    cut(c, floats);
    candidates++;
}

static void enter_named(const char *name, size_t floats)
{
    const struct cmn_communicator *c;

    if (!strcmp(name, "raw") || !strcmp(name, "send")) {
        enter(name, NULL, floats);
        return;
    }
    for (int i = 0; (c = cmn_communicator_at(i)); i++) {
        if (strcmp(name, "all") ? !strcmp(name, c->name) : c->sums) {
            enter(c->name, c, floats);
            if (strcmp(name, "all")) {
                return;
            }
        }
    }
    if (strcmp(name, "all")) {
        check(cmn_fail("no communicator is called %s", name));
    }
}

/* Whom rank 0 sends to. */
static int receiver(void)
{
    int mine = top.inter_rank > 0 ? top.rank : top.size - 1, first;

    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, top.world);
    return first;
}

static void exchange(const struct candidate *c)
{
    int n = (int)(c->x.block.n + c->x.metrics.n);
    char heard = 0;

    if (c->with) {
        c->with->allreduce(c->self, &c->x);
    } else if (!strcmp(c->name, "raw")) {
        MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, c->memory, n, MPI_FLOAT, MPI_SUM, top.world));
    } else if (top.rank == 0 && to > 0) {
        MPI_Send(c->memory, n, MPI_FLOAT, to, 1, top.world);
        MPI_Recv(&heard, 1, MPI_CHAR, to, 2, top.world, MPI_STATUS_IGNORE);
    } else if (top.rank == to && to > 0) {
        MPI_Recv(c->memory, n, MPI_FLOAT, 0, 1, top.world, MPI_STATUS_IGNORE);
        MPI_Send(&heard, 1, MPI_CHAR, 0, 2, top.world);
    }
}

static float value(size_t i, int rank)
{
    return (float)(i % 1009) * (float)(rank + 1);
}

/* The block's padding stays zero, as a training's does. */
static void fill(const struct candidate *c)
{
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < c->tensor[t].n; i++) {
            c->tensor[t].data[i] = value(i, top.rank);
        }
    }
    for (int i = 0; i < METRICS; i++) {
        c->x.metrics.data[i] = 1;
    }
}

static int wrong(const struct candidate *c)
{
    float factor = (float)(top.size * (top.size + 1) / 2);

    if (!c->with && strcmp(c->name, "raw")) {
        return 0;
    }
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < c->tensor[t].n; i++) {
            if (c->tensor[t].data[i] != value(i, 0) * factor) {
                return cmn_fail("%s: tensor %d at %zu of %zu: %g, not %g", c->name, t, i,
                                c->tensor[t].n, (double)c->tensor[t].data[i],
                                (double)(value(i, 0) * factor));
            }
        }
    }
    for (int i = 0; i < METRICS; i++) {
        if (c->x.metrics.data[i] != (float)top.size) {
            return cmn_fail("%s: metrics at %d: %g, not %d", c->name, i,
                            (double)c->x.metrics.data[i], top.size);
        }
    }
    return 0;
}

/* Half-way through an exchange. It may be over sooner than expected: then the next one. */
static void *fail_inside(void *half_way)
{
    const struct timespec *half = half_way, blink = {0, 10000};

    do {
        while (!atomic_load(&inside)) {
            nanosleep(&blink, NULL);
        }
        nanosleep(half, NULL);
    } while (!atomic_load(&inside));
    kill(getpid(), fault);
    return NULL;
}

static void write_myself(const char *folder)
{
    char name[4096], line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    FILE *out;

    snprintf(name, sizeof name, "%s/rank-%d", folder, top.rank);
    out = fopen(name, "w");
    check(out && maps ? 0 : cmn_fail("%s cannot be written", name));
    fprintf(out, "%d\n", (int)getpid());
    while (fgets(line, sizeof line, maps)) {
        const char *file = strstr(line, "/dev/shm/");
        if (file) {
            fputs(file, out);
        }
    }
    fclose(maps);
    fclose(out);
}

static void prepare_fault(int at_fault)
{
    static struct timespec half;
    const char *folder = getenv("EXCHANGE_FOLDER");
    pthread_t thread;

    if (folder) {
        write_myself(folder);
        MPI_Barrier(top.world);
    }
    armed = 1;
    half.tv_nsec = (long)(fastest / 2 * 1e9);
    if (top.rank == at_fault) {
        check(pthread_create(&thread, NULL, fail_inside, &half) ? cmn_fail("no thread") : 0);
    }
}

static void once(const struct candidate *c)
{
    double seconds;

    fill(c);
    if (!armed) {
        MPI_Barrier(top.world);
    }
    atomic_store(&inside, 1);
    seconds = cmn_clock();
    exchange(c);
    seconds = cmn_clock() - seconds;
    atomic_store(&inside, 0);
    fastest = seconds < fastest ? seconds : fastest;
    check(wrong(c));
    if (armed) {
        return; /* the exchange alone synchronises the ranks, as in a training */
    }
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, top.world);
    if (top.rank == 0) {
        printf("%s %.6f\n", c->name, seconds);
        fflush(stdout);
    }
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: exchange [-cmn_KEY VALUE]... FLOATS CALLS NAME[,NAME...] [die|freeze RANK CALL]\n");
    return 2;
}

static int run(int argc, char **argv)
{
    int at = 1, at_fault = -1;
    long calls, last = -1;
    size_t floats;

    to = receiver();
    cmn_options_default(&options);
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        check(cmn_options_set(&options, argv[at] + 1, argv[at + 1], 1));
    }
    if (argc - at == 6) {
        fault = !strcmp(argv[at + 3], "die")      ? SIGKILL
                : !strcmp(argv[at + 3], "freeze") ? SIGSTOP
                                                  : 0;
    }
    if ((argc - at != 3 && argc - at != 6) || !fault) {
        return usage();
    }
    floats = strtoul(argv[at], NULL, 10);
    calls = strtol(argv[at + 1], NULL, 10);
    if (argc - at == 6) {
        at_fault = (int)strtol(argv[at + 4], NULL, 10);
        last = strtol(argv[at + 5], NULL, 10);
    }
    for (char *name = strtok(argv[at + 2], ","); name; name = strtok(NULL, ",")) {
        enter_named(name, floats);
    }
    for (long call = 0; call < calls; call++) {
        if (call == last) {
            prepare_fault(at_fault);
        }
        for (int i = 0; i < candidates; i++) {
            once(&field[i]);
        }
    }
    for (int i = candidates - 1; i >= 0; i--) {
        if (field[i].memory_is_ours) {
            free(field[i].memory);
        }
        if (field[i].with) {
            field[i].with->close(field[i].self);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int result, length;

    MPI_Get_library_version(library, &length);
    cmn_launcher_prepare(library);
    MPI_Init(&argc, &argv);
    signal(SIGPIPE,
           SIG_IGN); /* as a training: else a rank's death kills its peers on other nodes, too */
    cmn_fatal_handler(end_job);
    cmn_topology_open(&top);
    result = run(argc, argv);
    cmn_topology_close(&top);
    MPI_Finalize();
    return result;
}
