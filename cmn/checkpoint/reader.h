/* Checkpoints are read: one file, or the newest intact one of a folder. Local, blocking (files).
 *
 * Whatever the bytes are, they are checked before they are used: a file cannot make the reader
 * take more memory than a few times its own size. */
#ifndef CMN_CHECKPOINT_READER_H
#define CMN_CHECKPOINT_READER_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>

#include "checkpoint/format.h"

struct cmn_checkpoint_file;

/* Reads one file, whole. NULL with a reason that says what is wrong with it. The caller frees. */
struct cmn_checkpoint_file *cmn_checkpoint_read(const char *path);

/* As cmn_checkpoint_read, but of bytes that the caller keeps that long. It has no path. */
struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n);

/* The newest one of this name that is intact; `damaged` is called with the reason for each newer
 * one that is damaged. NULL: there is no checkpoint (then *reason_given is 0); or a reason is
 * given (1): none is intact, or the newest cannot be read for want of rights or memory, or another
 * version has written it, or it belongs to another user (but root). The caller frees. */
struct cmn_checkpoint_file *cmn_checkpoint_newest(const char *folder, const char *name,
                                                  void (*damaged)(const char *reason),
                                                  int *reason_given);

/* The iteration of the latest of this name, intact or not; -1: none. Reads no file. */
long cmn_checkpoint_latest(const char *folder, const char *name);

/* Whether a weights file that was read up to here is a checkpoint, and its weights end here.
 * Leaves the stream where it was. */
int cmn_checkpoint_follows_weights(FILE *weights);

const char *cmn_checkpoint_path(const struct cmn_checkpoint_file *f);
long cmn_checkpoint_iteration(const struct cmn_checkpoint_file *f);
/* When it was written, in seconds since 1970; its bytes, all and those of the weights. */
long long cmn_checkpoint_written(const struct cmn_checkpoint_file *f);
size_t cmn_checkpoint_bytes(const struct cmn_checkpoint_file *f);
size_t cmn_checkpoint_weight_bytes(const struct cmn_checkpoint_file *f);

/* What it says of the training, a JSON object. The file owns it. */
const cJSON *cmn_checkpoint_training(const struct cmn_checkpoint_file *f);

struct cmn_checkpoint_tensor {
    char name[CMN_TENSOR_NAME];
    int rank;         /* or CMN_ALL_RANKS */
    const void *data; /* in the file's weights, or behind its header */
    size_t bytes;
    int in_weights;
};

/* Tensor i, in the order of names and then of ranks; NULL when there are no more. The file owns
 * it. */
const struct cmn_checkpoint_tensor *cmn_checkpoint_tensor_at(const struct cmn_checkpoint_file *f,
                                                             size_t i);
/* The tensor of that name and rank, or NULL. The file owns it. */
const struct cmn_checkpoint_tensor *cmn_checkpoint_tensor(const struct cmn_checkpoint_file *f,
                                                          const char *name, int rank);

/* NULL is allowed. */
void cmn_checkpoint_free(struct cmn_checkpoint_file *f);

#endif
