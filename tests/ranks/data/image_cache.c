/* The image cache of a node: its ranks share what each has decoded, other nodes do not. */
#include "ranks/ranks.h"

#include <limits.h>
#include <sys/stat.h>

#include "data/image_cache.h"

#include "nets.h"

enum { SIDE = 10, BYTES = SIDE * SIDE, RECORD = 128, EACH = 40 };

static void paint(unsigned char *pixels, int image)
{
    for (int i = 0; i < BYTES; i++) {
        pixels[i] = (unsigned char)(image + 7 * i);
    }
}

static void keep(int image)
{
    unsigned char pixels[BYTES];
    char name[32];

    paint(pixels, image);
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
    paint(want, image);
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

WORLD_TEST(the_ranks_of_a_node_share)
{
    int node[8];

    MPI_Allgather(&t->inter_rank, 1, MPI_INT, node, 1, MPI_INT, t->world);
    cmn_image_cache_open(t, 1 << 20, "");
    keep_mine(t);
    for (int rank = 0; rank < t->size; rank++) {
        CHECK_SAYING(kept_of(rank) == (node[rank] == t->inter_rank ? EACH : 0), "%s: %d", shape,
                     rank);
    }
    MPI_Barrier(t->world);
    cmn_image_cache_close();
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
    cmn_image_cache_open(&top, (size_t)1 << 20, "");
    keep_mine(&top);
    for (int rank = 0; rank < top.size && top.inter_size == 1; rank++) {
        CHECK_SAYING(kept_of(rank) == (rank == top.rank ? EACH : 0), "%d", rank);
    }
    MPI_Barrier(top.world);
    cmn_image_cache_close();
    CHECK(!chdir(before));
}

RANK_TEST(they_share_a_file_in_a_folder)
{
    char folder[PATH_MAX] = "";
    char *name;

    if (top.rank == 0) {
        name = nets_file("");
        unlink(name);
        snprintf(folder, sizeof folder, "%s", name);
        free(name);
        CHECK(!mkdir(folder, 0700));
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, top.world);
    cmn_image_cache_open(&top, 0, folder);
    keep_mine(&top);
    for (int rank = 0; rank < top.size && top.inter_size == 1; rank++) {
        CHECK_SAYING(kept_of(rank) == EACH, "%d", rank);
    }
    MPI_Barrier(top.world);
    cmn_image_cache_close();
    CHECK(top.rank || !rmdir(folder)); /* it is empty all the time */
}

RANK_TESTS(NULL, NULL)
