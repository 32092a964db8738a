/* The format of a checkpoint, and building a checkpoint in memory. Local, not blocking.
 *
 *     weights   a Darknet weights file, from byte 0
 *     mark      64 bytes: magic, version, three lengths, two checksums (struct cmn_mark)
 *     header    JSON: {"iteration", "written", "weights", "training": {...}, "tensors":
 *               [{"name", "bytes", "at"} or {"name", "rank", "bytes", "xxh3"}, ...]}; blanks up
 *               to a multiple of 64
 *     tensors   raw, in the header's order; zeros after each up to a multiple of 64
 *
 * Numbers are little-endian. "written" is the time in seconds since 1970. A tensor with "at" is
 * part of the weights: it begins at that byte, a multiple of 4, and is not stored again. A tensor
 * without "rank" is the same on all ranks, or each rank has a part of it.
 *
 * Checksums are XXH3 (64 bits); the header writes them as 16 hexadecimal digits. Each byte is
 * covered by one checksum: the weights by "weights", the header by the mark's first checksum, the
 * mark by its second, and a tensor with the zeros after it by its "xxh3". */
#ifndef CMN_CHECKPOINT_FORMAT_H
#define CMN_CHECKPOINT_FORMAT_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>

enum {
    CMN_CHECKPOINT_VERSION = 3,
    CMN_ALIGN = 64,       /* bytes */
    CMN_MARK = 64,        /* bytes in the file */
    CMN_TENSOR_NAME = 48, /* bytes, with the NUL */
    CMN_ALL_RANKS = -1    /* rank of a tensor that all ranks have in common */
};

/* Bytes 0 to 39 and the mark's own checksum lie at the same place in all versions of the format. */
struct cmn_mark {
    uint32_t version;
    uint64_t weights, file; /* bytes of the weights, bytes of the file */
    uint64_t header;        /* bytes of the header, with the blanks */
    uint64_t header_check;  /* checksum of the header, with the blanks */
};

uint64_t cmn_checksum(const void *bytes, size_t n);
/* Returns whether `check` is the checksum of these bytes. A fuzzer cannot guess checksums, so in
 * its build every checksum is right. */
int cmn_checks(const void *bytes, size_t n, uint64_t check);

static inline uint64_t cmn_aligned(uint64_t n)
{
    return (n + CMN_ALIGN - 1) / CMN_ALIGN * CMN_ALIGN;
}

void cmn_mark_write(const struct cmn_mark *mark, unsigned char to[CMN_MARK]);
/* Returns 0, or -1 if this is not a mark, or a damaged one. */
int cmn_mark_read(struct cmn_mark *mark, const unsigned char from[CMN_MARK]);
/* Returns the first place in n bytes at which the magic of a mark stands, or NULL. */
const unsigned char *cmn_mark_find(const unsigned char *bytes, size_t n);

/* Returns whether a tensor may have this name: 1 to 47 printable ASCII characters without
 * blanks. */
int cmn_tensor_name_is_valid(const char *name);

/* ---- a checkpoint in memory ---- */

/* A checkpoint in memory. Call the functions in this order: first write the weights and describe
 * the training, then name all tensors with their sizes, then allocate their memory, then fill it,
 * then seal. Functions return 0, or -1 with a reason, unless their comment says otherwise. */
struct cmn_snapshot;

/* Returns an empty snapshot, which the caller frees; NULL with a reason if memory is short. */
struct cmn_snapshot *cmn_snapshot_new(void);

/* Returns the stream to which Darknet writes its weights. The snapshot owns it. NULL with a
 * reason. */
FILE *cmn_snapshot_weights(struct cmn_snapshot *s);

/* Looks for these bytes in the weights written so far, from byte `from` on (a multiple of 4). If
 * they are there, the common tensor of that name refers to them and needs no memory. Returns the
 * byte after them, or 0 if they are not there or memory is short. */
size_t cmn_snapshot_refer(struct cmn_snapshot *s, const char *name, const void *data, size_t bytes,
                          size_t from);

/* Sets the description of the training. The snapshot owns it from here on, also if the call fails.
 * NULL is allowed and makes the call fail: the caller had too little memory. */
int cmn_snapshot_describe(struct cmn_snapshot *s, cJSON *training);

/* Names a tensor and its size. `rank` may be CMN_ALL_RANKS: then a second call with the same name
 * may make the tensor longer. */
int cmn_snapshot_tensor(struct cmn_snapshot *s, const char *name, int rank, size_t bytes);

/* Allocates zeroed memory for all tensors. */
int cmn_snapshot_allocate(struct cmn_snapshot *s);

/* Returns the memory of a tensor that was named, aligned to 64 bytes. The snapshot owns it. */
void *cmn_snapshot_data(struct cmn_snapshot *s, const char *name, int rank);

/* Completes the snapshot: the file consists of these three parts, one after the other. The snapshot
 * owns them. */
enum { CMN_SNAPSHOT_PARTS = 3 };
int cmn_snapshot_seal(struct cmn_snapshot *s, long iteration,
                      struct iovec part[CMN_SNAPSHOT_PARTS]);

/* NULL is allowed. */
void cmn_snapshot_free(struct cmn_snapshot *s);

#endif
