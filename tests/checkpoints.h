/* Checkpoints for tests: a folder of their own, and snapshots. */
#ifndef TESTS_CHECKPOINTS_H
#define TESTS_CHECKPOINTS_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
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

/* A tensor with these bytes. */
static inline void checkpoints_add(struct cmn_snapshot *s, const char *name, int rank,
                                   const void *data, size_t bytes)
{
    assert_int_equal(cmn_snapshot_tensor(s, name, rank, bytes), 0);
    assert_int_equal(cmn_snapshot_allocate(s), 0);
    memcpy(cmn_snapshot_data(s, name, rank), data, bytes);
}

/* Of `bytes` bytes of weights, and a tensor that tells the value. */
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
    assert_int_equal(cmn_snapshot_describe(s, cJSON_CreateObject()), 0);
    checkpoints_add(s, "value", CMN_ALL_RANKS, &value, sizeof value);
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
    const struct cmn_checkpoint_tensor *t = cmn_checkpoint_tensor(f, "value", CMN_ALL_RANKS);
    int value;

    assert_non_null(t);
    assert_int_equal(t->bytes, sizeof value);
    memcpy(&value, t->data, sizeof value);
    return value;
}

#endif
