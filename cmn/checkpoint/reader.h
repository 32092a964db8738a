/* Reads checkpoints: one file, or the newest intact one of a folder. Local, blocking (files).
 *
 * The reader checks all bytes before it uses them: a file cannot make it take more memory than a
 * few times the file's size. */
#ifndef CMN_CHECKPOINT_READER_H
#define CMN_CHECKPOINT_READER_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>

#include "checkpoint/format.h"

struct cmn_checkpoint_tensor {
    char name[CMN_TENSOR_NAME];
    int rank;         /* or CMN_ALL_RANKS */
    const void *data; /* in the file's weights, or after its header; the file owns it */
    size_t bytes;
    int in_weights; /* data is a part of the weights */
};

/* A checkpoint that was read. It owns what its fields point to, and only the reader sets them. */
struct cmn_checkpoint_file {
    char *path;                 /* NULL: it was read from memory */
    unsigned char *owned;       /* the bytes, if they are to be freed with this struct */
    const unsigned char *bytes; /* the whole file, of length n */
    size_t n;
    struct cmn_mark mark;
    int unusable; /* while it is read: it may be intact, but cannot be used */
    cJSON *header;
    const cJSON *training; /* the header's description of the training, an object */
    long iteration;
    long long written;                    /* in seconds since 1970 */
    struct cmn_checkpoint_tensor *tensor; /* in the order of names, then of ranks */
    size_t tensors;
};

/* Reads and checks one whole file. NULL with a reason that says what is wrong with it. The caller
 * frees the result. */
struct cmn_checkpoint_file *cmn_checkpoint_read(const char *path);

/* Does the same as cmn_checkpoint_read() for bytes in memory, which must outlive the result. The
 * result has no path. */
struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n);

/* Reads the newest intact checkpoint of this name; calls `damaged` with the reason for each newer
 * one that is damaged. NULL with *reason_given 0: there is no checkpoint. NULL with *reason_given 1
 * and a reason: the folder cannot be read, none is intact, or one that may be intact cannot be
 * used, because rights or memory are missing, another version of the format wrote it, or it belongs
 * to a user other than this one and root. The caller frees the result. */
struct cmn_checkpoint_file *cmn_checkpoint_newest(const char *folder, const char *name,
                                                  void (*damaged)(const char *reason),
                                                  int *reason_given);

/* Returns the iteration of the latest checkpoint of this name, intact or not; -1: there is none.
 * Reads only the folder, not the files. */
long cmn_checkpoint_latest(const char *folder, const char *name);

/* Returns whether the stream is a checkpoint and stands at the end of its weights. Leaves its
 * position unchanged. */
int cmn_checkpoint_follows_weights(FILE *weights);

/* Returns the tensor of that name and rank, or NULL. The file owns it. */
const struct cmn_checkpoint_tensor *cmn_checkpoint_tensor(const struct cmn_checkpoint_file *f,
                                                          const char *name, int rank);

/* NULL is allowed. */
void cmn_checkpoint_free(struct cmn_checkpoint_file *f);

#endif
