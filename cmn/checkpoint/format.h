/* The format of a checkpoint, and a checkpoint that is being put together in memory. Local,
 * non-blocking.
 *
 *     weights   a Darknet weights file, from byte 0
 *     mark      64 bytes: magic, version, three lengths, two checksums (struct cmn_mark)
 *     header    JSON: {"iteration", "written", "weights", "training": {...}, "tensors":
 *               [{"name", "bytes", "at"} or {"name", "rank", "bytes", "xxh3"}, ...]}; blanks up
 *               to a multiple of 64
 *     tensors   raw, in the header's order; zeros up to a multiple of 64 behind each
 *
 * Numbers are little-endian. A tensor with "at" is part of the weights and begins at that byte, a
 * multiple of 4; it is not stored again. A tensor without "rank" is the same on all ranks, or one
 * that the ranks have in common. Checksums are XXH3 (64 bits), in the header as 16 hexadecimal
 * digits. They cover each byte once: "weights" the weights, the mark's first one the header, a
 * tensor's the tensor and the zeros behind it. */
#ifndef CMN_CHECKPOINT_FORMAT_H
#define CMN_CHECKPOINT_FORMAT_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>

enum {
    CMN_CHECKPOINT_VERSION = 3,
    CMN_ALIGN = 64,
    CMN_MARK = 64, /* bytes in the file */
    CMN_TENSOR_NAME = 48,
    CMN_ALL_RANKS = -1
};

/* Bytes 0 to 39 and the last checksum lie at the same place in all versions. */
struct cmn_mark {
    uint32_t version;
    uint64_t weights, file; /* bytes: of the weights, of the file */
    uint64_t header;        /* bytes of the header, with the blanks */
    uint64_t header_check;
};

uint64_t cmn_checksum(const void *bytes, size_t n);
/* Whether the checksum of these bytes is `check`. A fuzzer cannot guess checksums: in its build
 * all are right. */
int cmn_checks(const void *bytes, size_t n, uint64_t check);

static inline uint64_t cmn_aligned(uint64_t n)
{
    return (n + CMN_ALIGN - 1) / CMN_ALIGN * CMN_ALIGN;
}

void cmn_mark_write(const struct cmn_mark *mark, unsigned char to[CMN_MARK]);
/* 0, or -1 when this is no mark, or a damaged one. */
int cmn_mark_read(struct cmn_mark *mark, const unsigned char from[CMN_MARK]);
/* The first place in n bytes where the magic stands, or NULL. */
const unsigned char *cmn_mark_find(const unsigned char *bytes, size_t n);

/* Whether a tensor may have this name: 1 to 47 printable characters without blanks. */
int cmn_tensor_name_is_valid(const char *name);

/* ---- a checkpoint in memory ---- */

/* First the weights and the description, then the names and sizes of all tensors, then their
 * memory, and then what they hold. Unless noted, functions return 0, or -1 with a reason. */
struct cmn_snapshot;

/* NULL with a reason when memory is short. */
struct cmn_snapshot *cmn_snapshot_new(void);

/* The stream that Darknet is to write its weights to. The snapshot owns it. NULL with a reason. */
FILE *cmn_snapshot_weights(struct cmn_snapshot *s);

/* Looks for these bytes in the weights that were written so far, from byte `from` (a multiple of
 * 4) on. If they are there, the tensor of that name, which all ranks have in common, refers to them
 * and needs no memory. Returns the byte behind them, or 0 if they are not there or memory is
 * short. */
size_t cmn_snapshot_refer(struct cmn_snapshot *s, const char *name, const void *data, size_t bytes,
                          size_t from);

/* What the checkpoint says of the training. The snapshot owns it from here on, also when the call
 * fails. NULL: memory was short. */
int cmn_snapshot_describe(struct cmn_snapshot *s, cJSON *training);

/* There is a tensor of at least so many bytes; a second call with the same name and rank may make
 * it longer. `rank` may be CMN_ALL_RANKS. */
int cmn_snapshot_tensor(struct cmn_snapshot *s, const char *name, int rank, size_t bytes);

/* Memory for all tensors, zeroed. */
int cmn_snapshot_allocate(struct cmn_snapshot *s);

/* A tensor's memory, at a multiple of 64. It must be one that was named. The snapshot owns it. */
void *cmn_snapshot_data(struct cmn_snapshot *s, const char *name, int rank);

/* Completes it: the file is these three parts, one behind the other. The snapshot owns them. */
enum { CMN_SNAPSHOT_PARTS = 3 };
int cmn_snapshot_seal(struct cmn_snapshot *s, long iteration,
                      struct iovec part[CMN_SNAPSHOT_PARTS]);

/* NULL is allowed. */
void cmn_snapshot_free(struct cmn_snapshot *s);

#endif
