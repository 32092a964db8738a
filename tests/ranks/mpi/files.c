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
    const size_t n = (5 << 20) + 13;
    char *large = malloc(n);

    for (size_t i = 0; i < n; i++) {
        large[i] = (char)(i * 31 + i / 997);
    }
    check_share("a.png\nb.png\n", 12);
    check_share("no newline", 10);
    check_share("a\0b\xff\r\n", 6);
    check_share("", 0);
    check_share(large, n);
    free(large);
}

/* The next one works: nobody is left behind in a collective call. */
RANK_TEST(what_cannot_be_read)
{
    static const struct {
        const char *name;
        int error;
    } files[] = {{"/no/such/list.txt", ENOENT}, {"/proc", EISDIR}};
    char want[128];

    for (size_t i = 0; i < COUNT(files); i++) {
        errno = 0;
        CHECK(!cmn_files_broadcast(&top, files[i].name));
        CHECK_SAYING(errno == files[i].error, "%s", strerror(errno));
        snprintf(want, sizeof want, "%s: %s", files[i].name, strerror(files[i].error));
        CHECK_SAYING(strstr(cmn_reason(), want), "%s", cmn_reason());
        check_share("again", 5);
    }
}

RANK_TESTS(NULL, NULL)
