/* The image cache of a node: its ranks share what each has decoded, other nodes do not. */
#include "ranks/ranks.h"

#include <limits.h>

#include "data/image_cache.h"

#include "folder.h"

enum { SIDE = 10, BYTES = SIDE * SIDE, RECORD = 128, EACH = 40 };

static void keep(int image)
{
    unsigned char pixels[BYTES];
    char name[32];

    memset(pixels, image, sizeof pixels);
    snprintf(name, sizeof name, "%d.png", image);
    cmn_image_cache_keep(name, 1, SIDE, SIDE, 1, pixels);
}

/* Whether it is there; whole, if it is. */
static int is_kept(int image)
{
    unsigned char want[BYTES], *copy;
    char name[32];
    int w = 0, h = 0, c = 0, kept;

    snprintf(name, sizeof name, "%d.png", image);
    copy = cmn_image_cache_find(name, 1, &w, &h, &c);
    memset(want, image, sizeof want);
    kept = copy != NULL;
    CHECK_SAYING(!copy || (w == SIDE && h == SIDE && c == 1), "%d: %d x %d x %d", image, w, h, c);
    CHECK_SAYING(!copy || !memcmp(copy, want, BYTES), "%d", image);
    free(copy);
    return kept;
}

/* Each rank keeps images of its own; how many it finds of those of rank `of`. */
static int kept_of(int of)
{
    int kept = 0;

    for (int i = 0; i < EACH; i++) {
        kept += is_kept(of * EACH + i);
    }
    return kept;
}

static void keep_mine(const struct cmn_topology *t)
{
    for (int i = 0; i < EACH; i++) {
        keep(t->rank * EACH + i);
    }
    MPI_Barrier(t->world);
}

/* Opens it, and checks that of each rank's images all are found, or none. */
static void share(const struct cmn_topology *t, const char *shape, size_t memory, const char *dir,
                  int (*shares)(const struct cmn_topology *t, int rank))
{
    cmn_image_cache_open(t, memory, dir);
    keep_mine(t);
    for (int rank = 0; rank < t->size; rank++) {
        CHECK_SAYING(kept_of(rank) == (shares(t, rank) ? EACH : 0), "%s: %d", shape, rank);
    }
    MPI_Barrier(t->world);
    cmn_image_cache_close();
}

static int node[8];

static int on_my_node(const struct cmn_topology *t, int rank)
{
    return node[rank] == t->inter_rank;
}

static int is_me(const struct cmn_topology *t, int rank)
{
    return rank == t->rank;
}

WORLD_TEST(the_ranks_of_a_node_share)
{
    MPI_Allgather(&t->inter_rank, 1, MPI_INT, node, 1, MPI_INT, t->world);
    share(t, shape, 1 << 20, "", on_my_node);
}

/* The first rank's limit counts, for all ranks of its node together. */
RANK_TEST(the_limit_is_that_of_a_node)
{
    int kept = 0, limit = EACH / 2;

    cmn_image_cache_open(&top, (size_t)(top.rank == 0 ? limit : 1000) * 2 * RECORD, "");
    keep_mine(&top);
    for (int rank = 0; rank < top.size && top.inter_size == 1; rank++) {
        kept += kept_of(rank);
    }
    CHECK_SAYING(top.inter_size > 1 || (kept > 0 && kept <= 2 * limit), "%d", kept);
    MPI_Barrier(top.world);
    cmn_image_cache_close();
}

/* A name of the one folder is another image in the other: each rank has its own part. */
RANK_TEST(ranks_in_different_folders_share_nothing)
{
    char before[PATH_MAX];

    CHECK(getcwd(before, sizeof before) && !chdir(top.rank == 0 ? "/" : before));
    share(&top, "other folders", 1 << 20, "", is_me);
    CHECK(!chdir(before));
}

RANK_TEST(they_share_a_file_in_a_folder)
{
    if (top.rank == 0) {
        make_folder();
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, top.world);
    MPI_Allgather(&top.inter_rank, 1, MPI_INT, node, 1, MPI_INT, top.world);
    share(&top, "a folder", 0, folder, on_my_node);
    CHECK(top.rank || !rmdir(folder)); /* it is empty all the time */
}

RANK_TESTS(NULL, NULL)
