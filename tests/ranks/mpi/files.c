#include "ranks/ranks.h"

#include <errno.h>

#include "mpi/files.h"
#include "nets.h"

/* A file that rank 0 alone has: the others name one that does not exist. */
static char *only_on_rank_0(const char *text, size_t n)
{
    char *name = nets_file("");

    if (top.rank != 0) {
        unlink(name);
    } else {
        FILE *file = fopen(name, "wb");
        CHECK(file && fwrite(text, 1, n, file) == n && fclose(file) == 0);
    }
    return name;
}

static void check_share(const char *text, size_t n)
{
    char *name = only_on_rank_0(text, n);
    char *got = malloc(n + 2);
    FILE *file = cmn_files_broadcast(&top, name);

    CHECK_SAYING(file, "%s", cmn_reason());
    if (file) {
        size_t read = fread(got, 1, n + 1, file);
        CHECK_SAYING(read == n, "%zu bytes of %zu", read, n);
        CHECK(feof(file));
        CHECK(!memcmp(got, text, n));
        rewind(file);
        CHECK(fgetc(file) == (n ? (unsigned char)text[0] : EOF));
        CHECK(fclose(file) == 0);
    }
    unlink(name);
    free(name);
    free(got);
}

RANK_TEST(shared)
{
    check_share("a.png\nb.png\n", 12);
    check_share("no newline", 10);
    check_share("a\0b\xff\r\n", 6);
}

RANK_TEST(empty)
{
    check_share("", 0);
}

RANK_TEST(large)
{
    const size_t n = (5 << 20) + 13;
    char *text = malloc(n);

    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(i * 31 + i / 997);
    }
    check_share(text, n);
    free(text);
}

RANK_TEST(missing)
{
    FILE *file;

    errno = 0;
    file = cmn_files_broadcast(&top, "/no/such/list.txt");
    CHECK(!file);
    CHECK(errno == ENOENT);
    CHECK_SAYING(strstr(cmn_reason(), "/no/such/list.txt: No such file"), "%s", cmn_reason());
    /* The next one works: nobody is left behind in a collective call. */
    check_share("again", 5);
}

RANK_TEST(folder)
{
    FILE *file;

    errno = 0;
    file = cmn_files_broadcast(&top, "/proc");
    CHECK(!file);
    CHECK_SAYING(errno == EISDIR, "%s", strerror(errno));
    CHECK_SAYING(strstr(cmn_reason(), "/proc: "), "%s", cmn_reason());
}

RANK_TESTS(NULL, NULL)
