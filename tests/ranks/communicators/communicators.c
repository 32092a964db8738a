/* Communicators × shapes of nodes × transports × lengths; run.sh adds × numbers of ranks. Values
 * are small integers, so sums are exact whatever the order of the additions, and known in closed
 * form. */
#include "ranks/ranks.h"

#include "base/memory.h"
#include "communicators/communicator.h"

enum { ALIGN = 16, GUARD = 32, TENSORS = 4, METRICS = 16 };

/* Where an exchange happens: named in messages. */
struct place {
    const struct cmn_communicator *c;
    const struct cmn_topology *t;
    const char *shape;
    void *self;
};

/* What a communicator gets, with a guard of its own on both sides of the block. */
struct world {
    float *memory;
    int memory_is_ours;
    struct cmn_span tensor[TENSORS + 1]; /* and, behind the last, the metrics */
    int spans;
    struct cmn_exchange x;
};

static size_t padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void make_world(struct world *w, const struct place *place, const size_t *n, int tensors)
{
    size_t total = 0, at = GUARD, floats;

    for (int i = 0; i < tensors; i++) {
        total += padded(n[i]);
    }
    floats = padded(total + METRICS + 2 * GUARD);
    w->memory = NULL;
    if (place->c->memory) {
        CHECK_SAYING(place->c->memory(place->self, floats, &w->memory) == 0, "%s", cmn_reason());
    }
    w->memory_is_ours = !w->memory;
    if (w->memory_is_ours) {
        w->memory = cmn_alloc_floats(floats);
    }
    CHECK((uintptr_t)w->memory % 64 == 0);
    for (size_t i = 0; i < floats; i++) {
        CHECK_SAYING(w->memory[i] == 0, "%s: memory is not zero", place->c->name);
    }
    for (int i = 0; i < GUARD; i++) {
        w->memory[i] = w->memory[GUARD + total + METRICS + (size_t)i] = -1234.5F;
    }
    for (int i = 0; i < tensors; i++) {
        w->tensor[i] = (struct cmn_span){.data = w->memory + at, .n = n[i]};
        at += padded(n[i]);
    }
    w->tensor[tensors] = (struct cmn_span){.data = w->memory + at, .n = METRICS};
    w->spans = tensors + 1;
    w->x = (struct cmn_exchange){.tensor = w->tensor,
                                 .tensors = tensors,
                                 .block = {.data = w->memory + GUARD, .n = total},
                                 .metrics = w->tensor[tensors]};
}

/* Collective. */
static void end_world(struct world *w, const struct place *place)
{
    place->c->close(place->self);
    if (w->memory_is_ours) {
        free(w->memory);
    }
}

static float whole(size_t i, int rank)
{
    return (float)((int)(i % 1009) - 504) * (float)(rank + 1);
}

static float fraction(size_t i, int rank)
{
    return 1.0F / (float)(i % 997 + 3) / (float)(rank + 1);
}

static void fill(const struct world *w, float (*value)(size_t, int))
{
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            w->tensor[t].data[i] = value(i + (size_t)t, top.rank);
        }
    }
}

/* The sum of `whole` over the ranks: 1 + 2 + … + size. */
static void check_sums(const struct world *w, const struct place *place)
{
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            float want = whole(i + (size_t)t, 0) * (float)(top.size * (top.size + 1) / 2);
            CHECK_SAYING(w->tensor[t].data[i] == want,
                         "%s, nodes %s, %zu floats, at %zu: %g, not %g", place->c->name,
                         place->shape, w->tensor[t].n, i, (double)w->tensor[t].data[i],
                         (double)want);
        }
    }
}

static void check_untouched(const struct world *w, const struct place *place)
{
    const float *end = w->x.metrics.data + w->x.metrics.n;

    for (int i = 0; i < GUARD; i++) {
        CHECK_SAYING(w->memory[i] == -1234.5F && end[i] == -1234.5F,
                     "%s, nodes %s, wrote before the block or behind the metrics", place->c->name,
                     place->shape);
    }
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = w->tensor[t].n; i < padded(w->tensor[t].n); i++) {
            CHECK_SAYING(w->tensor[t].data[i] == 0, "%s, nodes %s, wrote into the padding",
                         place->c->name, place->shape);
        }
    }
}

/* Sums of fractions depend on the order of the additions; still all ranks and every call agree on
 * each bit. */
static void exchange_fractions(const struct world *w, const struct place *place)
{
    size_t bytes = (w->x.block.n + METRICS) * sizeof(float);
    float *first = malloc(bytes);

    for (int call = 0; call < 2; call++) {
        fill(w, fraction);
        place->c->allreduce(place->self, &w->x);
        if (call == 0) {
            memcpy(first, w->x.block.data, bytes);
        }
    }
    CHECK_SAYING(!memcmp(first, w->x.block.data, bytes),
                 "%s, nodes %s, %zu floats: other bits in the second call", place->c->name,
                 place->shape, w->x.block.n);
    CHECK_SAYING(same_everywhere(first, bytes), "%s, nodes %s, %zu floats: not the same bits",
                 place->c->name, place->shape, w->x.block.n);
    for (int t = 0; t < w->spans; t++) {
        for (size_t i = 0; i < w->tensor[t].n; i++) {
            double want = 0, is = (double)w->tensor[t].data[i];
            for (int rank = 0; rank < top.size; rank++) {
                want += (double)fraction(i + (size_t)t, rank);
            }
            CHECK_SAYING(is > want * 0.999999 && is < want * 1.000001, "%s, nodes %s, at %zu",
                         place->c->name, place->shape, i);
        }
    }
    free(first);
}

static void exchange(struct place *place, const size_t *n, int tensors)
{
    struct world w;

    place->self = NULL;
    CHECK_SAYING(place->c->open(&place->self, place->c, place->t, &options) == 0, "%s: %s",
                 place->c->name, cmn_reason());
    make_world(&w, place, n, tensors);
    for (int call = 0; call < 2; call++) {
        fill(&w, whole);
        place->c->allreduce(place->self, &w.x);
        check_sums(&w, place);
        check_untouched(&w, place);
    }
    exchange_fractions(&w, place);
    check_untouched(&w, place);
    end_world(&w, place);
}

/* Communicators that refuse here, named by `refused`. */
static char refused[512];

static int willing(const struct cmn_communicator *c, const struct cmn_topology *t)
{
    const char *why = cmn_communicator_refuses(c, t, &options);
    int mine = why == NULL, least, most;

    MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, top.world);
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, top.world);
    CHECK_SAYING(least == most, "%s refuses on some ranks only", c->name);
    if (!least) {
        CHECK_SAYING(why && strlen(why) > 10, "%s refuses without a reason", c->name);
        if (!strstr(refused, c->name)) {
            snprintf(refused + strlen(refused), sizeof refused - strlen(refused), " %s (%s)",
                     c->name, why);
        }
    }
    return least;
}

static void exchange_everywhere(const struct cmn_topology *t, const char *shape)
{
    const size_t size = (size_t)top.size, large = (1 << 20) + 3;
    const size_t length[] = {0, 1, 3, size - 1, size, size + 1, 1000, large};
    const size_t tensors[][TENSORS] = {{1, 17, 3, 16}, {0, 1000, 0, 5}, {70001, 1, 15, 262144}};
    struct place place = {.t = t, .shape = shape};

    for (int k = 0; (place.c = cmn_communicator_at(k)); k++) {
        if (!place.c->sums || !willing(place.c, t)) {
            continue;
        }
        /* The large one in the world as it is: it takes most of the time. */
        for (size_t i = 0; i < COUNT(length) - (t != &top); i++) {
            exchange(&place, &length[i], 1);
        }
        for (size_t i = 0; i < COUNT(tensors); i++) {
            exchange(&place, tensors[i], TENSORS);
        }
    }
}

/* What runs in this program is all that does not refuse; the test `choice` knows which ones may. */
RANK_TEST(sums)
{
    refused[0] = '\0';
    in_every_world(exchange_everywhere);
    printf("# refused somewhere:%s\n", refused[0] ? refused : " none");
}

static const struct cmn_communicator *choose_on(const struct cmn_topology *t, const char *name,
                                                const char **why)
{
    snprintf(options.communicator, sizeof options.communicator, "%s", name);
    return cmn_communicator_choose(t, &options, why);
}

RANK_TEST(dummy_exchanges_nothing)
{
    const size_t length[] = {1000};
    const char *why;
    struct place place = {.c = choose_on(&top, "dummy", &why), .t = &top, .shape = "as it is"};
    struct world w;

    CHECK(place.c && !place.c->sums);
    CHECK(place.c->open(&place.self, place.c, &top, &options) == 0);
    make_world(&w, &place, length, 1);
    fill(&w, whole);
    place.c->allreduce(place.self, &w.x);
    for (size_t i = 0; i < length[0]; i++) {
        CHECK(w.tensor[0].data[i] == whole(i, top.rank));
    }
    check_untouched(&w, &place);
    end_world(&w, &place);
}

/* Whether `name` must refuse: nothing else may. */
static int must_refuse(const char *name, const struct cmn_topology *t)
{
    return (!strcmp(name, "single_node") && t->inter_size > 1) || !strcmp(name, "pure_nccl");
}

static void choose_everything(const struct cmn_topology *t, const char *shape)
{
    const struct cmn_communicator *c;
    const char *why = NULL;

    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        int refuses = must_refuse(c->name, t);
        const struct cmn_communicator *found = choose_on(t, c->name, &why);
        CHECK(c->cpu && c->gpu && c->use && c->open && c->allreduce && c->close);
        CHECK_SAYING(found == (refuses ? NULL : c), "%s, nodes %s: %s", c->name, shape,
                     refuses ? "does not refuse" : cmn_reason());
        CHECK_SAYING(!refuses || strstr(cmn_reason(), c->name), "%s", cmn_reason());
        CHECK(refuses || !strcmp(why, "as asked"));
    }
}

RANK_TEST(choice)
{
    const struct cmn_communicator *c;
    const char *why = NULL;

    in_every_world(choose_everything);
    CHECK(!choose_on(&top, "ring", &why));
    CHECK(strstr(cmn_reason(), "ring"));
    for (int k = 0; (c = cmn_communicator_at(k)); k++) {
        CHECK_SAYING(strstr(cmn_reason(), c->name), "%s", cmn_reason());
    }
}

/* auto gives something that works, the same on all ranks, and says how it came to it. */
WORLD_TEST(automatic)
{
    char want[64], mine[64] = "";
    const char *why = "";
    const struct cmn_communicator *c = choose_on(t, "auto", &why);

    CHECK_SAYING(c, "nodes %s: %s", shape, cmn_reason());
    CHECK_SAYING(c && c->sums && !cmn_communicator_refuses(c, t, &options), "nodes %s", shape);
    snprintf(want, sizeof want,
             t->size == 1         ? "auto: one rank"
             : t->inter_size == 1 ? "auto: one node"
                                  : "auto: %d nodes, 4 MiB in ",
             t->inter_size);
    CHECK_SAYING(strstr(why, want) == why, "%s", why);
    CHECK_SAYING(t->inter_size == 1 || strstr(why, "flat") || (c && !strcmp(c->name, "flat")), "%s",
                 why);
    CHECK_SAYING(t->inter_size > 1 || t->size == 1 || (c && !strcmp(c->name, "shm")), "%s", why);
    snprintf(mine, sizeof mine, "%s", c ? c->name : "");
    CHECK_SAYING(same_everywhere(mine, sizeof mine), "nodes %s: ranks choose differently", shape);
    printf("# nodes %s: %s, %s\n", shape, mine, why);
}

RANK_TESTS(NULL, NULL)
