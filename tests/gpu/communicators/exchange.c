/* Communicators on GPUs over the stand-in for CUDA and NCCL, in every shape of nodes and as
 * cmn_compress says: exchanged at once or while backward still runs, late and in pieces, the sums
 * have the same bits. */
#include "gpu/gpu.h"

#include <math.h>
#include <stdint.h>

#include "base/timeline.h"

/* Of the steps of a trial the first have whole numbers, whose sums are exact; in the others sums
 * depend on each rounding. By NCCL there is one more, whose sums fit in no 16 bits, but their mean
 * does. */
enum {
    ROUGH = 2,
    LARGE = 4,
    STEPS,
    MOST = 5000000,
    SUMMING = 8 /* but shm and dummy; single_node twice */
};

/* A vector of a length that differs, matrices of several forms, and small ones. */
static struct {
    size_t n;
    int rows;
} forms[] = {{0, 0}, {61 * 90, 61}, {100, 0}, {4096, 4}, {17, 0}};

struct net {
    struct cmn_span tensor[COUNT(forms) + 1]; /* and, behind the last, the metrics */
    struct cmn_exchange x;
    struct gpu_block b;
};

static void open_net(struct net *net, int tensors)
{
    size_t at = 0, floats = 16;

    for (int i = 0; i < tensors; i++) {
        floats += (forms[i].n + 15) / 16 * 16;
    }
    make_block(&net->b, floats);
    for (int i = 0; i < tensors; i++) {
        net->tensor[i] = (struct cmn_span){net->b.data + at, forms[i].n, forms[i].rows};
        at += (forms[i].n + 15) / 16 * 16;
    }
    net->tensor[tensors] = (struct cmn_span){net->b.data + at, 16, 0};
    net->x = (struct cmn_exchange){.tensor = net->tensor,
                                   .tensors = tensors,
                                   .block = {.data = net->b.data, .n = at},
                                   .metrics = net->tensor[tensors]};
}

static size_t place_of(const struct net *net, int tensor)
{
    return (size_t)(net->tensor[tensor].data - net->b.data);
}

static float value(size_t i, int step, int rank)
{
    uint32_t x = (uint32_t)i * 2654435761U + (uint32_t)(rank * 104729 + step * 7919 + 1) * 40503U;

    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    if (step == LARGE) {
        return (options.compress == CMN_BF16 ? 1e30F : 60000.0F) / (float)(i + 1) *
               (i % 2 ? 1.0F : -1.0F);
    }
    return step < ROUGH ? (float)((int)(x % 61) - 30) : (float)(int32_t)x / 2147483648.0F;
}

/* Padding is zero. */
static void fill(float *to, const struct net *net, int step)
{
    memset(to, 0, net->b.n * sizeof *to);
    for (int t = 0; t <= net->x.tensors; t++) {
        for (size_t i = 0; i < net->tensor[t].n; i++) {
            to[place_of(net, t) + i] = value(place_of(net, t) + i, step, top.rank);
        }
    }
}

/* A communicator that exchanges the same at once, and in pieces. */
struct trial {
    const struct cmn_communicator *c;
    int by_nccl;
    void *self[2];
    struct net net[2];
    float *fresh;
    char name[128];
};

/* Both have the same bits, and those are the true sums, or near them: 16 bits through the host add what
 * the step before has lost by rounding. The metrics, the last tensor, do not become 16 bits. */
static void check_sums(const struct trial *t, int step)
{
    const float *a = t->net[0].b.host, *b = t->net[1].b.host;

    for (int k = 0; k <= t->net[0].x.tensors; k++) {
        size_t at = place_of(&t->net[0], k), n = t->net[0].tensor[k].n;
        long type = k < t->net[0].x.tensors ? options.compress : CMN_COMPRESS_OFF;
        double limit = type == CMN_FP16 ? 3e-3 : type == CMN_BF16 ? 2e-2 : step < ROUGH ? 0 : 1e-6;
        CHECK_SAYING(!memcmp(a + at, b + at, n * sizeof *a),
                     "%s, step %d, tensor %d of %zu floats: other bits than at once", t->name, step,
                     k, n);
        for (size_t i = at; i < at + n && type != CMN_COMPRESS_POWERSGD; i++) {
            double want = 0, size = 0, is = (double)a[i];
            for (int r = 0; r < top.size; r++) {
                want += (double)value(i, step, r);
                size += fabs((double)value(i, step, r));
            }
            CHECK_SAYING(fabs(is - want) <= limit * (size + 1), "%s, step %d, at %zu: %g, not %g",
                         t->name, step, i, is, want);
        }
    }
}

/* As backward makes them: tensor by tensor, or less. */
static void exchange_late(const struct trial *t, size_t bucket)
{
    const struct net *net = &t->net[1];
    size_t at = 0, block = net->x.block.n;

    for (int i = 0; i < net->x.tensors; i++) {
        for (size_t end = place_of(net, i + 1); at < end;) {
            size_t upto = end - at > bucket ? at + bucket : end;
            t->c->poll(t->self[1]);
            fake_later(net->b.data + at, t->fresh + at, upto - at);
            t->c->begin(t->self[1], &net->x, at = upto);
        }
    }
    fake_later(net->b.data + block, t->fresh + block, net->x.metrics.n);
    t->c->allreduce(t->self[1], &net->x);
}

static void try_step(const struct trial *t, int step)
{
    /* Ranks that share a real GPU take turns, some milliseconds for each sum. */
    const size_t block = t->net[0].x.block.n,
                 buckets[] = {block / (STAND_IN ? 100 : 8) + 16, block / 3 + 7, block + 1};

    fill(t->fresh, &t->net[0], step);
    for (int i = 0; i < 2; i++) {
        if (i && t->c->begin && !cmn_communicator_no_begin(t->c, t->self[1])) {
            exchange_late(t, options.compress && !t->by_nccl ? block : buckets[step % 3]);
        } else {
            fake_later(t->net[i].b.data, t->fresh, t->net[i].b.n);
            t->c->allreduce(t->self[i], &t->net[i].x);
        }
    }
    for (int i = 0; i < 2; i++) {
        read_block(&t->net[i].b);
    }
    CHECK_SAYING(same_everywhere(t->net[0].b.host, t->net[0].b.n * sizeof(float)),
                 "%s, step %d: other bits elsewhere", t->name, step);
    check_sums(t, step);
}

static void try_net(const struct cmn_communicator *c, const struct cmn_topology *place,
                    const char *world, size_t first, int tensors)
{
    struct trial t = {.c = c};
    int last;

    t.by_nccl = !strcmp(c->name, "pure_nccl") ||
                (!strcmp(c->name, "single_node") && options.intra == CMN_INTRA_AUTO);
    last = t.by_nccl ? STEPS : LARGE;
    forms[0].n = first;
    snprintf(t.name, sizeof t.name, "%s, %s, %s, %zu floats", c->name, world,
             cmn_options_word(&options, "cmn_compress"), first);
    for (int i = 0; i < 2; i++) {
        CHECK_SAYING(c->open(&t.self[i], c, place, &options) == 0, "%s: %s", t.name, cmn_reason());
        open_net(&t.net[i], tensors);
    }
    t.fresh = calloc(t.net[0].b.n, sizeof *t.fresh);
    for (int step = first < MOST ? 0 : ROUGH; step < last && !failure[0]; step++) {
        try_step(&t, step);
    }
    MPI_Barrier(top.world);
    for (int i = 0; i < 2; i++) {
        c->close(t.self[i]);
        free_block(&t.net[i].b);
    }
    free(t.fresh);
}

static int tried; /* communicators that did not refuse */

/* Each in one of the two `intra`, as the others give the same, and single_node in both. */
static void try_all(const struct cmn_topology *place, const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;
    const size_t lengths[] = {0, 1, 100};
    int whole_world = place == &top, plain = !options.compress, by_nccl;

    here.device = 0;
    for (int k = 0; (c = cmn_communicator_at(k)) && !failure[0]; k++) {
        by_nccl = !strcmp(c->name, "pure_nccl");
        if (!c->sums || cmn_communicator_refuses(c, &here, &options) ||
            (by_nccl
                 ? options.intra == CMN_INTRA_MPI
                 : options.intra == CMN_INTRA_AUTO && (!plain || strcmp(c->name, "single_node")))) {
            continue;
        }
        tried += whole_world;
        for (size_t i = 0; i < COUNT(lengths) && whole_world; i++) {
            try_net(c, &here, world, lengths[i], 1);
        }
        try_net(c, &here, world, whole_world ? 70001 : 4500, COUNT(forms));
        /* Several parts and a rest. */
        if (c->begin && (whole_world ? plain || by_nccl : by_nccl && plain)) {
            try_net(c, &here, world, 300000, 1);
        }
        if (by_nccl && plain && whole_world && top.size < 3) {
            try_net(c, &here, world, MOST, 1); /* as many as there can be */
        }
    }
}

GPU_TEST(same_bits)
{
    for (int kind = CMN_COMPRESS_OFF; kind <= CMN_COMPRESS_POWERSGD; kind++) {
        /* Ranks that share a real GPU take turns: two of them show what the host does. */
        for (int intra = 0; intra < (STAND_IN || top.size <= 2 || !kind ? 2 : 1); intra++) {
            all_well();
            options.compress = kind;
            options.compress_rank = 5;
            options.intra = intra ? CMN_INTRA_MPI : CMN_INTRA_AUTO;
            in_every_world(try_all);
        }
        CHECK_SAYING(kind || tried == SUMMING, "%d communicators were tried", tried);
    }
}

/* ---- one communicator, in the world as it is ---- */

struct one {
    const struct cmn_communicator *c;
    void *self;
    struct net net;
};

static void open_one(struct one *o, const char *name, size_t n)
{
    o->c = cmn_communicator_find(name);
    CHECK_SAYING(o->c->open(&o->self, o->c, &top, &options) == 0, "%s", cmn_reason());
    forms[0].n = n;
    open_net(&o->net, 1);
}

static void close_one(struct one *o)
{
    o->c->close(o->self);
    free_block(&o->net.b);
}

/* Gradients are sums over images: their mean is to fit; a sum that does not is finite on no rank.
 * One that adds 32 bits would be seen by the sums that fit. */
GPU_TEST(sums_over_images)
{
    struct one o;

    options.compress = CMN_COMPRESS_FP16;
    open_one(&o, "pure_nccl", 112);
    o.net.x.images = 64;
    for (int fits = 1; fits >= 0 && top.size > 1; fits--) {
        float *x = &o.net.b.host[100];
        for (size_t i = 0; i < o.net.b.n; i++) {
            o.net.b.host[i] = 1;
        }
        *x = (fits ? 3e6F : 5e6F) / (float)top.size;
        cmn_device_write(o.net.b.data, o.net.b.host, o.net.b.n);
        o.c->allreduce(o.self, &o.net.x);
        cmn_device_read(o.net.b.host, o.net.b.data, o.net.b.n);
        CHECK_SAYING(fits ? *x > 2.99e6F && *x < 3.01e6F : isinf(*x), "%g", (double)*x);
    }
    close_one(&o);
}

GPU_TEST(no_memory_for_16_bits)
{
    struct one o;
    const char *said;

    needs_the_stand_in();
    options.compress = CMN_COMPRESS_FP16;
    open_one(&o, "pure_nccl", 112);
    fake.no_memory = 1;
    said = fatal_of(o.c->allreduce(o.self, &o.net.x));
    CHECK_SAYING(said && strstr(said, "cudaMalloc") && !check_lost, "%s", said);
    close_one(&o);
}

/* What is queued behind `order` finds the sums, though nobody has waited for them. */
GPU_TEST(order)
{
    enum { TIMES = 5 };
    struct gpu_block copy;
    struct one o;

    open_one(&o, "pure_nccl", 300000);
    make_block(&copy, o.net.b.n);
    for (int i = 0; i < TIMES; i++) {
        fill_block(&copy, -1);
        fill_block(&o.net.b, top.rank);
        o.c->begin(o.self, &o.net.x, o.net.b.n);
        CHECK(o.c->order(o.self) == 1);
        cmn_device_copy(copy.data, o.net.b.data, copy.n);
        read_block(&copy);
        o.c->allreduce(o.self, &o.net.x);
        for (size_t j = 0; j < copy.n; j++) {
            CHECK(copy.host[j] == whole(j, 0) * (float)(top.size * (top.size + 1) / 2));
        }
    }
    free_block(&copy);
    close_one(&o);
}

/* Each sum of a step has its span, one after the other on the stream, within what the host saw of
 * it. */
GPU_TEST(spans)
{
    enum { N = 600000, SUMS = 3 };
    struct one o;
    struct cmn_event *e;
    size_t n = 0, lost;
    int64_t before, after;

    cmn_timeline_open(100);
    open_one(&o, "pure_nccl", N);
    before = (int64_t)(cmn_clock() * 1e9);
    for (int step = 0; step < 2; step++) {
        fill_block(&o.net.b, top.rank);
        o.c->begin(o.self, &o.net.x, N / 2);
        o.c->allreduce(o.self, &o.net.x);
    }
    after = (int64_t)(cmn_clock() * 1e9);
    e = cmn_timeline_copy(&n, &lost);
    CHECK_SAYING(e && n == 2 * (size_t)SUMS, "%zu spans: %s", n, e ? "" : cmn_reason());
    for (size_t i = 0; e && i < n; i++) {
        CHECK_SAYING(e[i].what == CMN_SPAN_EXCHANGE && e[i].number == (int)(i % SUMS), "span %zu",
                     i);
        CHECK_SAYING(e[i].background, "span %zu hides what the host does", i);
        CHECK_SAYING(e[i].begin <= e[i].end && e[i].begin >= (i ? e[i - 1].end : before) - 10000 &&
                         e[i].end <= after,
                     "span %zu is out of place", i);
    }
    free(e);
    cmn_timeline_close();
    close_one(&o);
}

/* Darknet's own work, behind which the copy to the host lies. */
GPU_TEST(a_copy_does_not_end)
{
    struct one o;
    const char *said;

    needs_the_stand_in();
    if (top.size == 1) {
        return; /* it copies nothing */
    }
    options.timeout = 1;
    open_one(&o, "flat", 6000);
    o.c->begin(o.self, &o.net.x, 0);
    fake.hangs = 1;
    fill_block(&o.net.b, top.rank);
    said = fatal_of(o.c->allreduce(o.self, &o.net.x));
    CHECK_SAYING(said &&
                     strstr(said, "a copy between GPU and CPU did not end in 1 s (cmn_timeout)"),
                 "%s", said);
    fake.hangs = 0;
    close_one(&o);
}

/* ---- which one ---- */

/* On one node, where no link is slow. Without NCCL the refusals are the CPU's. */
GPU_TEST(choice)
{
    enum { OFF = CMN_COMPRESS_OFF, BF16 = CMN_COMPRESS_BF16, POWERSGD = CMN_COMPRESS_POWERSGD };
    static const struct {
        const char *name, *says;
        long compress;
        int through_host, delayed, shares_gpus;
    } row[] = {
        {"auto", "takes pure_nccl", .compress = OFF},
        {"auto", "takes pure_nccl", .compress = BF16},
        {"auto", "takes flat", .compress = POWERSGD},
        {"auto", "takes single_node", .through_host = 1, .shares_gpus = 1},
        {"shm", "pure_nccl", .compress = OFF},
        {"pure_nccl", ": use flat, hierarchical or", .compress = POWERSGD},
        {"single_node", ": use flat, hierarchical or", .compress = POWERSGD},
        {"hierarchical", "or use flat", .compress = POWERSGD},
        {"flat", "takes flat", .compress = POWERSGD},
        {"pure_nccl", "takes pure_nccl", .compress = BF16},
        {"single_node", "takes single_node", .compress = BF16},
        {"flat", "takes flat", .compress = BF16},
        {"naive", "cmn_compress", .compress = BF16},
        {"hierarchical", "does not go with ranks on one node", .compress = BF16},
        {"two_dimensional", "or use flat, which sends all the same", .compress = BF16},
        {"single_node", "or use flat, which", .compress = BF16, .through_host = 1},
        {"hierarchical", "does not go with ranks on one node", .through_host = 1, .delayed = 1},
        {"two_dimensional", "or use flat, which", .through_host = 1, .delayed = 1},
        {"single_node", "or use flat, which", .through_host = 1, .delayed = 1},
    };

    for (size_t i = 0; i < COUNT(row); i++) {
        const struct cmn_communicator *c;
        const char *why;
        char said[512];
        all_well();
        options.compress = row[i].compress;
        options.double_buffering = row[i].delayed;
        options.intra = row[i].through_host ? CMN_INTRA_MPI : CMN_INTRA_AUTO;
        top.shares_gpus = row[i].shares_gpus;
        snprintf(options.communicator, sizeof options.communicator, "%s", row[i].name);
        c = cmn_communicator_choose(&top, &options, &why);
        snprintf(said, sizeof said, "%s%s", c ? "takes " : "", c ? c->name : cmn_reason());
        CHECK_SAYING(strstr(said, row[i].says), "%zu, %s: %s", i, row[i].name, said);
    }
    top.shares_gpus = 0;
}

RANK_TESTS(NULL, NULL)
