/* A folder of a test's own, below TMPDIR, which goes with all that is in it. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include "check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

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

static inline char *in_folder(const char *file)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
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

#endif
