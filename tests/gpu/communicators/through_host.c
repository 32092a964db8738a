/* Sums through the host over the stand-in, in every shape of nodes and as cmn_compress says: the
 * bits of the CPU, step after step. */
#include "gpu/gpu.h"

#include <math.h>

#include "base/memory.h"
#include "compression/compressor.h"

enum { STEPS = 3, BAD = 1 };

/* A large vector, matrices of several forms, and small ones. */
static struct {
    size_t n;
    int rows;
} forms[] = {{70001, 0}, {61 * 90, 61}, {100, 0}, {4096, 4}, {17, 0}};

enum { TENSORS = COUNT(forms) };

struct net {
    struct cmn_span tensor[TENSORS];
    struct cmn_exchange x;
    size_t floats;
};

static size_t lay_out(struct net *net, float *memory)
{
    size_t at = 0;

    for (int i = 0; i < TENSORS; i++) {
        net->tensor[i] = (struct cmn_span){memory + at, forms[i].n, forms[i].rows};
        at += (forms[i].n + 15) / 16 * 16;
    }
    net->x = (struct cmn_exchange){.tensor = net->tensor,
                                   .tensors = TENSORS,
                                   .block = {.data = memory, .n = at},
                                   .metrics = {.data = memory + at, .n = 16}};
    net->floats = at + 16;
    return net->floats;
}

/* Whole numbers, whose sums do not depend on their order, and many of which are equal. Once a rank has
 * some that are no numbers. */
static void fill(float *to, const struct net *net, int step, int rank)
{
    size_t end = 0;

    for (size_t i = 0; i < net->floats; i++) {
        size_t mixed = (i * 2654435761U + (size_t)(step * 7919 + rank * 104729)) >> 7;
        to[i] = (float)((int)(mixed % 61) - 30) * (mixed % 5 ? 1.0F : 8.0F);
    }
    if (step == BAD && rank == top.size - 1) {
        to[5] = NAN;
        to[net->tensor[1].data - net->x.block.data + 900] = INFINITY;
    }
    for (int i = 0; i <= TENSORS; i++) { /* padding is zero */
        const struct cmn_span *t = i < TENSORS ? &net->tensor[i] : &net->x.metrics;
        size_t at = (size_t)(t->data - net->x.block.data);
        memset(to + end, 0, (at - end) * sizeof *to);
        end = at + t->n;
    }
}

static void compare(const float *gpu, const float *cpu, const struct net *net, int step,
                    const char *name)
{
    for (int i = 0; i <= TENSORS; i++) {
        const struct cmn_span *t = i < TENSORS ? &net->tensor[i] : &net->x.metrics;
        size_t at = (size_t)(t->data - net->x.block.data);
        CHECK_SAYING(!memcmp(gpu + at, cpu + at, t->n * sizeof *gpu),
                     "%s, step %d, tensor %d: other bits", name, step, i);
    }
}

/* What the CPU has in place of it, and how it is opened. */
static const struct cmn_communicator *cpus(const struct cmn_communicator *c,
                                           struct cmn_options *cpu_options)
{
    *cpu_options = options;
    cpu_options->intra = CMN_INTRA_AUTO;
    if (!strcmp(c->name, "flat")) { /* by messages, as on GPUs */
        cpu_options->double_buffering = 1;
    }
    return strcmp(c->name, "non_cuda_aware") ? c : cmn_communicator_find("hierarchical");
}

/* What a restart needs has the same bits. One rank copies nothing, and needs nothing. */
static void look_at_state(const struct cmn_communicator *c, void *on_gpu,
                          const struct cmn_communicator *model, void *on_cpu, const char *name)
{
    struct cmn_state a, b;

    for (int i = 0; c->state && top.size > 1; i++) {
        int is = c->state(on_gpu, i, &a), was = model->state(on_cpu, i, &b);
        CHECK_SAYING(is == was && (!is || (a.bytes == b.bytes && !memcmp(a.data, b.data, a.bytes))),
                     "%s: entry %d: %d and %d", name, i, is, was);
        if (!is || !was) {
            return;
        }
    }
}

static void train_both(const struct cmn_communicator *c, const struct cmn_topology *place,
                       const char *world)
{
    struct cmn_options cpu_options;
    const struct cmn_communicator *model = cpus(c, &cpu_options);
    struct cmn_topology gpu = *place, cpu = *place;
    struct net there, here;
    struct gpu_block b;
    float *memory = NULL, *own = NULL, *fresh;
    void *on_gpu = NULL, *on_cpu = NULL;
    char name[128];

    gpu.device = 0;
    cpu.device = -1;
    snprintf(name, sizeof name, "%s, %s, %s", cmn_options_word(&options, "cmn_compress"), c->name,
             world);
    CHECK_SAYING(c->open(&on_gpu, c, &gpu, &options) == 0, "%s: %s", name, cmn_reason());
    CHECK_SAYING(model->open(&on_cpu, model, &cpu, &cpu_options) == 0, "%s: %s", name,
                 cmn_reason());
    make_block(&b, lay_out(&there, NULL));
    lay_out(&there, b.data);
    CHECK(!model->memory || model->memory(on_cpu, there.floats, &memory) == 0);
    memory = memory ? memory : (own = cmn_alloc_floats(there.floats));
    lay_out(&here, memory);
    fresh = calloc(there.floats, sizeof *fresh);
    for (int step = 0; step < STEPS; step++) {
        fill(fresh, &there, step, top.rank);
        memcpy(memory, fresh, there.floats * sizeof *fresh);
        model->allreduce(on_cpu, &here.x);
        fake_later(b.data, fresh, there.floats);
        c->allreduce(on_gpu, &there.x);
        cmn_device_read(b.host, b.data, b.n);
        compare(b.host, memory, &there, step, name);
        CHECK_SAYING(step == BAD || same_everywhere(b.host, b.n * sizeof *b.host),
                     "%s, step %d: other bits", name, step);
    }
    look_at_state(c, on_gpu, model, on_cpu, name);
    MPI_Barrier(top.world);
    c->close(on_gpu);
    model->close(on_cpu);
    free(own);
    free(fresh);
    free_block(&b);
    CHECK_SAYING(fake.alive == 0, "%s: %d things were not given back", name, fake.alive);
}

/* Over NCCL there are no bits to compare with. */
static void try_all(const struct cmn_topology *place, const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;

    here.device = 0;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        if (c->sums && strcmp(c->name, "pure_nccl") &&
            !cmn_communicator_refuses(c, &here, &options) && !failure[0]) {
            train_both(c, place, world);
        }
    }
}

static void as_cpu(void **state)
{
    (void)state;
    for (int kind = CMN_COMPRESS_OFF; kind <= CMN_COMPRESS_POWERSGD; kind++) {
        all_well();
        options.compress = kind;
        options.compress_rank = 5;
        options.intra = kind == CMN_COMPRESS_POWERSGD ? CMN_INTRA_AUTO : CMN_INTRA_MPI;
        forms[0].n = 70001;
        try_all(&top, "as it is");
        forms[0].n = 4500;
        in_every_world(try_all);
    }
    all_well();
    fail_on_all_ranks();
}

/* ---- while backward still runs ---- */

static void exchange_late(const struct cmn_communicator *c, void *self, struct gpu_block *b,
                          const struct net *net, const float *fresh)
{
    for (int i = 0; i <= TENSORS; i++) {
        const struct cmn_span *t = i < TENSORS ? &net->tensor[i] : &net->x.metrics;
        size_t at = (size_t)(t->data - net->x.block.data);
        fake_later(b->data + at, fresh + at, t->n);
        if (i < TENSORS) {
            c->begin(self, &net->x, at + t->n);
        }
        c->poll(self);
    }
    c->allreduce(self, &net->x);
}

/* Tensor by tensor, and all at once: the same bits, step after step. */
static void overlap_both(const struct cmn_communicator *c, const struct cmn_topology *place,
                         const char *world)
{
    struct cmn_topology gpu = *place;
    struct gpu_block b[2];
    struct net net[2];
    void *self[2];
    float *fresh;

    gpu.device = 0;
    for (int i = 0; i < 2; i++) {
        CHECK_SAYING(c->open(&self[i], c, &gpu, &options) == 0, "%s", cmn_reason());
        CHECK(!cmn_communicator_no_begin(c, self[i]));
        make_block(&b[i], lay_out(&net[i], NULL));
        lay_out(&net[i], b[i].data);
        c->begin(self[i], &net[i].x, 0);
    }
    fresh = calloc(net[0].floats, sizeof *fresh);
    for (int step = 0; step < 2 * STEPS; step += STEPS) { /* none of them BAD */
        fill(fresh, &net[0], step, top.rank);
        fake_later(b[0].data, fresh, net[0].floats);
        c->allreduce(self[0], &net[0].x);
        exchange_late(c, self[1], &b[1], &net[1], fresh);
        for (int i = 0; i < 2; i++) {
            cmn_device_read(b[i].host, b[i].data, b[i].n);
        }
        for (int i = 0; i <= TENSORS; i++) {
            const struct cmn_span *t = i < TENSORS ? &net[0].tensor[i] : &net[0].x.metrics;
            size_t at = (size_t)(t->data - net[0].x.block.data);
            CHECK_SAYING(!memcmp(b[0].host + at, b[1].host + at, t->n * sizeof(float)),
                         "%s, %s, %s, step %d: other bits of tensor %d where it overlaps",
                         cmn_options_word(&options, "cmn_compress"), c->name, world, step, i);
        }
        CHECK(same_everywhere(b[1].host, b[1].n * sizeof(float)));
    }
    MPI_Barrier(top.world);
    for (int i = 0; i < 2; i++) {
        c->close(self[i]);
        free_block(&b[i]);
    }
    free(fresh);
    CHECK_SAYING(fake.alive == 0, "%s: %d things were not given back", c->name, fake.alive);
}

static void overlap_all(const struct cmn_topology *place, const char *world)
{
    const struct cmn_communicator *c;
    struct cmn_topology here = *place;

    here.device = 0;
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        if (c->sums && c->begin && strcmp(c->name, "pure_nccl") &&
            !cmn_communicator_refuses(c, &here, &options) && !failure[0]) {
            overlap_both(c, place, world);
        }
    }
}

static void overlaps(void **state)
{
    (void)state;
    for (int kind = CMN_COMPRESS_OFF; kind <= CMN_COMPRESS_POWERSGD; kind++) {
        all_well();
        options.compress = kind;
        options.intra = CMN_INTRA_MPI;
        in_every_world(overlap_all);
    }
    all_well();
    fail_on_all_ranks();
}

/* Those that cannot say what to use; of the others auto takes one. */
static void choice(void **state)
{
    static const char *const says[][2] = {{"pure_nccl", ": use flat, hierarchical or"},
                                          {"hierarchical", "or use flat"},
                                          {"non_cuda_aware", "or use flat"},
                                          {"single_node", ": use flat, hierarchical or"}};
    const struct cmn_communicator *c;
    const char *why;

    (void)state;
    all_well();
    options.compress = CMN_COMPRESS_POWERSGD;
    for (size_t i = 0; i < COUNT(says); i++) {
        snprintf(options.communicator, sizeof options.communicator, "%s", says[i][0]);
        CHECK(!cmn_communicator_choose(&top, &options, &why));
        CHECK_SAYING(strstr(cmn_reason(), says[i][1]), "%s", cmn_reason());
    }
    snprintf(options.communicator, sizeof options.communicator, "auto");
    c = cmn_communicator_choose(&top, &options, &why);
    CHECK_SAYING(c && !strcmp(c->name, "flat"), "auto: %s", c ? c->name : cmn_reason());
    all_well();
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice),
        cmocka_unit_test(as_cpu),
        cmocka_unit_test(overlaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return gpu_main(group);
}
