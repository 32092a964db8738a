/* A folder of a test's own, below TMPDIR, which goes with all that is in it. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include "check.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[256];

static inline void make_folder_in(const char *parent)
{
    snprintf(folder, sizeof folder, "%s/cmn-test-XXXXXX", parent);
    assert_non_null(mkdtemp(folder));
}

static inline void make_folder(void)
{
    make_folder_in(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
}

static inline void remove_folder(void)
{
    char command[512];

    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* The path is valid until the fourth call after this one. */
static inline char *in_folder(const char *file)
{
    static char path[4][1024];
    static unsigned calls;
    char *to = path[calls++ % 4];

    snprintf(to, sizeof path[0], "%s/%s", folder, file);
    return to;
}

/* A file there with this text. */
static inline char *file_of(const char *file, const char *text)
{
    char *path = in_folder(file);
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* What a file holds, up to 64 KB; valid until the next call. */
static inline char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *in = fopen(path, "r");

    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

static inline int files_in(const char *name)
{
    DIR *d = opendir(name);
    int files = -2; /* . and .. */

    assert_non_null(d);
    while (readdir(d)) {
        files++;
    }
    closedir(d);
    return files;
}

static inline off_t size_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(name, &st), 0);
    return st.st_size;
}

/* So large may files become: what a full disk does, and more exactly. 0: as large as they like. */
static inline void limit_files(off_t bytes)
{
    static struct rlimit usual;
    struct rlimit little;

    signal(SIGXFSZ, SIG_IGN);
    if (!usual.rlim_max) {
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    }
    little = usual;
    if (bytes) {
        little.rlim_cur = (rlim_t)bytes;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
}

#endif
