/* What ranks hold goes to rank 0 and back; what is the same on all does not go to one after the other. */
#include "ranks/ranks.h"
#include "checkpoints.h"

#include <cjson/cJSON.h>

#include "checkpoint/gather.h"

enum { COMMON = 300000, PART = 1000, OWN = 70 };

static struct {
    float common[COMMON], part[PART], own[OWN];
} mine, then;

/* Bytes of messages from one rank to another that this rank has sent. */
static unsigned long long sent;

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
    int bytes = 0;

    MPI_Type_size(type, &bytes);
    sent += (unsigned long long)count * (unsigned long long)bytes;
    return PMPI_Send(data, count, type, to, tag, group);
}

static void fill(void)
{
    memset(&mine, 0, sizeof mine);
    for (int i = 0; i < COMMON; i++) {
        mine.common[i] = (float)(i % 1013);
    }
    for (int i = 0; i < PART; i++) {
        mine.part[i] = (float)(top.rank * PART + i);
    }
    for (int i = 0; i < OWN; i++) {
        mine.own[i] = (float)(top.rank * 100 + i + 1);
    }
    then = mine;
}

/* Ranks list them in orders of their own. The last one has no part. */
static int list(struct cmn_checkpoint_item item[3])
{
    const struct cmn_checkpoint_item all[] = {
        {.name = "common",
         .data = mine.common,
         .bytes = sizeof mine.common,
         .scale = 1,
         .elsewhere = top.rank > 0},
        {.name = "part",
         .data = mine.part,
         .bytes = sizeof mine.part,
         .scale = 1,
         .first = (size_t)top.rank * sizeof mine.part},
        {.name = "own", .own = 1, .data = mine.own, .bytes = sizeof mine.own, .scale = 1},
    };
    int items = 0;

    fill();
    for (int i = 0; i < 3; i++) {
        const struct cmn_checkpoint_item *one = &all[(i + top.rank) % 3];
        if (top.rank < top.size - 1 || top.rank == 0 || strcmp(one->name, "part") != 0) {
            item[items++] = *one;
        }
    }
    return items;
}

static void check_file(const struct cmn_checkpoint_file *f)
{
    int parts = top.size > 1 ? top.size - 1 : 1;
    const struct cmn_checkpoint_tensor *t = cmn_checkpoint_tensor(f, "common", CMN_ALL_RANKS);

    CHECK(t && t->bytes == sizeof then.common && !memcmp(t->data, then.common, t->bytes));
    t = cmn_checkpoint_tensor(f, "part", CMN_ALL_RANKS);
    CHECK(t && t->bytes == (size_t)parts * sizeof then.part);
    for (int i = 0; t && i < parts * PART; i++) {
        CHECK(((const float *)t->data)[i] == (float)i);
    }
    for (int r = 0; r < top.size; r++) {
        t = cmn_checkpoint_tensor(f, "own", r);
        CHECK(t && t->bytes == sizeof then.own &&
              ((const float *)t->data)[3] == (float)(r * 100 + 4));
    }
}

RANK_TEST(all_come_back)
{
    struct cmn_snapshot *s = top.rank ? NULL : cmn_snapshot_new();
    struct cmn_checkpoint_origin by = {.ranks = top.size, .same_ranks = 1, .same_nodes = 1};
    struct cmn_checkpoint_item item[3];
    struct cmn_checkpoint_file *f = NULL;
    unsigned char *bytes = NULL;
    int items = list(item);
    size_t n;

    sent = 0;
    CHECK(!cmn_checkpoint_gather(item, items, s, &top));
    CHECK_SAYING(sent <= sizeof mine.part + sizeof mine.own, "%llu bytes", sent);
    if (top.rank == 0) {
        CHECK(!cmn_snapshot_describe(s, cJSON_CreateObject()));
        bytes = checkpoints_sealed(s, 7, &n);
        f = cmn_checkpoint_parse(bytes, n);
        CHECK_SAYING(f, "%s", cmn_reason());
        check_file(f);
    }
    memset(&mine, 0, sizeof mine);
    sent = 0;
    cmn_checkpoint_scatter(item, items, f, &by, &top);
    /* The replicas went to all at once. */
    CHECK_SAYING(sent < (unsigned long long)top.size * (sizeof mine.part + sizeof mine.own + 1000),
                 "%llu bytes", sent);
    CHECK(!memcmp(mine.common, then.common, sizeof then.common));
    CHECK(!memcmp(mine.own, then.own, sizeof then.own));
    for (int i = 0; i < items; i++) {
        CHECK_SAYING(item[i].got == item[i].bytes, "%s: %zu", item[i].name, item[i].got);
        CHECK(strcmp(item[i].name, "part") || !memcmp(mine.part, then.part, sizeof then.part));
    }
    cmn_checkpoint_free(f);
    cmn_snapshot_free(s);
    free(bytes);
}

/* Rank 0 has no memory for it: nobody sends, and all go on. */
RANK_TEST(without_a_snapshot)
{
    struct cmn_checkpoint_item item[3];
    int items = list(item);

    sent = 0;
    CHECK((cmn_checkpoint_gather(item, items, NULL, &top) == -1) == (top.rank == 0));
    CHECK_SAYING(sent == 0, "%llu bytes", sent);
}

RANK_TESTS(NULL, NULL)
