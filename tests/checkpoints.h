/* Checkpoints for tests: a folder of their own, snapshots of all kinds of sections. */
#ifndef TESTS_CHECKPOINTS_H
#define TESTS_CHECKPOINTS_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "checkpoint/checkpoint.h"
#include "base/log.h"

static char folder[2048];

static inline int checkpoints_setup(void **state)
{
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";

    (void)state;
    snprintf(folder, sizeof folder, "%s/cmn-checkpoint-XXXXXX", tmp);
    return mkdtemp(folder) ? 0 : -1;
}

static inline char *checkpoints_path(const char *file)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

/* How many entries there are. */
static inline int checkpoints_files(void)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            n++;
        }
    }
    closedir(d);
    return n;
}

/* After a test: the folder is empty. */
static inline int checkpoints_empty(void **state)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    (void)state;
    while (d && (e = readdir(d))) {
        unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) {
        closedir(d);
    }
    return 0;
}

static inline int checkpoints_teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* Of `bytes` bytes of weights, and a section that tells the value. */
static inline struct cmn_snapshot *checkpoints_snapshot(int value, size_t bytes)
{
    struct cmn_snapshot *s = cmn_snapshot_new();
    FILE *weights;

    assert_non_null(s);
    weights = cmn_snapshot_weights(s);
    assert_non_null(weights);
    for (size_t i = 0; i < bytes; i++) {
        fputc((int)(i * 7 + (size_t)value) & 255, weights);
    }
    assert_int_equal(cmn_snapshot_add(s, "value", CMN_NO_RANK, &value, sizeof value), 0);
    return s;
}

/* Writes one and waits until it is there. */
static inline void checkpoints_write(struct cmn_writer *w, int value, size_t bytes, long iteration)
{
    char text[1024] = "";

    assert_int_equal(cmn_writer_start(w, checkpoints_snapshot(value, bytes), iteration), 0);
    cmn_writer_wait(w);
    if (cmn_writer_result(w, text, sizeof text, NULL)) {
        fail_msg("%s", text);
    }
}

static inline int checkpoints_value(const struct cmn_checkpoint_file *f)
{
    size_t bytes;
    const int *value = cmn_checkpoint_section(f, "value", CMN_NO_RANK, &bytes);

    assert_non_null(value);
    assert_int_equal(bytes, sizeof *value);
    return *value;
}

#endif
