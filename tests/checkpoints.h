/* Checkpoints for tests: a folder of their own, and snapshots. */
#ifndef TESTS_CHECKPOINTS_H
#define TESTS_CHECKPOINTS_H

#include "folder.h"

#include <sys/prctl.h>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

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
    cmn_writer_result(w, text, sizeof text, NULL);
    assert_string_equal(text, "");
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

/* The snapshot as a file in memory, or NULL; the caller frees. */
static inline unsigned char *checkpoints_sealed(struct cmn_snapshot *s, long iteration, size_t *n)
{
    struct iovec part[CMN_SNAPSHOT_PARTS];
    unsigned char *file;

    *n = 0;
    if (cmn_snapshot_seal(s, iteration, part)) {
        return NULL;
    }
    file = malloc(part[0].iov_len + part[1].iov_len + part[2].iov_len);
    for (int i = 0; i < CMN_SNAPSHOT_PARTS; i++) {
        if (part[i].iov_len) { /* an empty one has no memory */
            memcpy(file + *n, part[i].iov_base, part[i].iov_len);
        }
        *n += part[i].iov_len;
    }
    return file;
}

/* Another process that holds something until it is killed. */
static inline pid_t holder(void (*hold)(void))
{
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a test fails */
        hold();
        if (write(ready[1], "x", 1) == 1) {
            pause();
        }
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static inline void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
