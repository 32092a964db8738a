/* cmn_data=scatter: each host has the files that its ranks want, and no others. */
#include "ranks/ranks.h"

#include "data/scatter.h"
#include "folder.h"

static const size_t sizes[] = {0, 1, 4096, (4 << 20) + 77, 70001, 5};
enum { FILES = COUNT(sizes) };

static const char *name_of(size_t i)
{
    static char name[300];

    snprintf(name, sizeof name, "%s/a file %zu", folder, i);
    return name;
}

/* What file i is to hold. */
static const unsigned char *content_of(size_t i, int version)
{
    static unsigned char bytes[(4 << 20) + 77];

    for (size_t at = 0; at < sizes[i]; at++) {
        bytes[at] = (unsigned char)(i * 31 + at * 7 + at / 4096 + (size_t)version);
    }
    return bytes;
}

/* Rank 0. */
static void write_file(size_t i, int version)
{
    FILE *file = fopen(name_of(i), "wb");

    fwrite(content_of(i, version), 1, sizes[i], file);
    fclose(file);
}

static int wants(size_t i, int rank)
{
    return (i + (size_t)rank) % 3 == 0;
}

static int is_wanted_here(const struct cmn_topology *t, size_t i)
{
    int wanted = wants(i, t->rank);

    MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_INT, MPI_MAX, t->intra);
    return wanted;
}

static void send_all(const struct cmn_topology *t)
{
    for (size_t i = 0; i < FILES; i++) {
        cmn_scatter_add(name_of(i), wants(i, t->rank), 0);
    }
    cmn_scatter_add("/no/such/label", 1, 1);
    cmn_scatter_send(0, 0);
}

static void check_copy(const struct cmn_topology *t, const char *shape, size_t i, int version)
{
    static unsigned char found[5 << 20];
    const char *path = cmn_scatter_path(name_of(i));
    struct stat is = {0}, was = {0};
    int wanted = is_wanted_here(t, i);
    FILE *file = fopen(path, "rb");

    CHECK_SAYING(!strcmp(path, name_of(i)) == (t->inter_rank == 0), "%s, %s", shape, path);
    CHECK_SAYING(!file == (t->inter_rank && !wanted), "%s, node %d, file %zu: %s", shape,
                 t->inter_rank, i, wanted ? "not there" : "there");
    if (file) {
        CHECK_SAYING(fread(found, 1, sizeof found, file) == sizes[i] &&
                         !memcmp(found, content_of(i, version), sizes[i]),
                     "%s, file %zu", shape, i);
        fstat(fileno(file), &is);
        stat(name_of(i), &was);
        CHECK_SAYING(is.st_mtim.tv_sec == was.st_mtim.tv_sec &&
                         is.st_mtim.tv_nsec == was.st_mtim.tv_nsec,
                     "%s, file %zu: another time", shape, i);
        fclose(file);
    }
}

static void check_all(const struct cmn_topology *t, const char *shape, int changed)
{
    for (size_t i = 0; i < FILES; i++) {
        check_copy(t, shape, i, changed && i == 3);
    }
    CHECK(access(cmn_scatter_path("/no/such/label"), F_OK));
    MPI_Barrier(t->world);
}

static ino_t copy_of(size_t i)
{
    struct stat s = {0};

    stat(cmn_scatter_path(name_of(i)), &s);
    return s.st_ino;
}

/* What is there is not sent again, and what has changed is. */
WORLD_TEST(each_host_has_what_it_wants)
{
    char cache[300];
    ino_t before[2];

    if (t->rank == 0) {
        make_folder();
        for (size_t i = 0; i < FILES; i++) {
            write_file(i, 0);
        }
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, t->world);
    snprintf(cache, sizeof cache, "%s/cache-%d", folder, t->inter_rank);
    mkdir(cache, 0700);
    MPI_Barrier(t->world);
    cmn_scatter_open(t, cache);
    send_all(t);
    check_all(t, shape, 0);
    if (t->inter_rank && !t->intra_rank) { /* rank 0 had this one once */
        fclose(fopen(cmn_scatter_path("/no/such/label"), "w"));
    }
    before[0] = copy_of(3);
    before[1] = copy_of(4);
    MPI_Barrier(t->world);
    if (t->rank == 0) {
        write_file(3, 1);
    }
    send_all(t);
    check_all(t, shape, 1);
    CHECK_SAYING(!before[1] || copy_of(4) == before[1], "%s: it was sent twice", shape);
    CHECK_SAYING(!t->inter_rank || !before[0] || copy_of(3) != before[0], "%s: not sent", shape);
    MPI_Barrier(t->world);
    if (t->rank == 0) {
        remove_folder();
    }
}

RANK_TESTS(NULL, NULL)
