/* A checkpoint's bytes, for those who write and read them (checkpoint_file.h is for the others). Local, non-blocking.
 *
 *     weights        as Darknet writes them, from byte 0
 *     head           64 bytes: mark, version, length of the file, iteration, time
 *     sections       one after the other
 *     index          96 bytes for each section, the weights being the first
 *     trailer        64 bytes: where the index is, length of the file, checksums, mark
 *
 * Each begins at the next multiple of 64; what lies between is zero. The head stands where the weights end, so who reads weights
 * meets it there, and it tells of a file that was cut off how long it had been. Numbers are little-endian. */
#ifndef CMN_CHECKPOINT_FORMAT_H
#define CMN_CHECKPOINT_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

enum { CMN_FORMAT_VERSION = 1, CMN_ALIGN = 64, CMN_HEAD = 64, CMN_ENTRY = 96, CMN_TRAILER = 64 };

/* What the whole file's checksum does not cover: itself, and the mark behind it. */
enum { CMN_UNCOVERED = 24 };

#define CMN_WEIGHTS "weights" /* name of the first section */

struct cmn_entry {
    char name[CMN_SECTION_NAME]; /* printable, ends with a zero */
    int32_t rank;
    uint32_t same;   /* 0, or n: these bytes are those of section n - 1, and stored there */
    uint64_t bytes;  /* of the section */
    uint64_t lead;   /* so many zeros come before what is stored; the rest comes behind it */
    uint64_t offset; /* in the file */
    uint64_t stored;
    uint64_t check; /* of what is stored */
};

struct cmn_head {
    uint32_t version;
    uint64_t weights, bytes; /* lengths: of the weights, and of the file */
    int64_t iteration;
    int64_t when; /* seconds since 1970 */
};

struct cmn_trailer {
    uint32_t version;
    uint64_t index, entries; /* where it begins, how many it has */
    uint64_t index_check;
    uint64_t bytes; /* of the file */
    uint64_t check; /* of all before this number */
};

uint64_t cmn_checksum(const void *bytes, size_t n);
/* Whether the checksum of these bytes is `check`. */
int cmn_checks(const void *bytes, size_t n, uint64_t check);

static inline uint64_t cmn_aligned(uint64_t n)
{
    return (n + CMN_ALIGN - 1) / CMN_ALIGN * CMN_ALIGN;
}

/* What at least has to be stored of a section. So a small file cannot ask for much memory. */
static inline uint64_t cmn_least_stored(uint64_t bytes)
{
    return bytes <= 65536 ? 0 : bytes / 256 + 1;
}

void cmn_entry_write(const struct cmn_entry *e, unsigned char *to);
void cmn_entry_read(struct cmn_entry *e, const unsigned char *from);

void cmn_head_write(const struct cmn_head *h, unsigned char *to);
/* 0, or -1 when this is no head, or a damaged one. */
int cmn_head_read(struct cmn_head *h, const unsigned char *from);

/* `check` is left to cmn_trailer_seal. */
void cmn_trailer_write(const struct cmn_trailer *t, unsigned char *to);
/* 0, or -1 when the mark is missing. */
int cmn_trailer_read(struct cmn_trailer *t, const unsigned char *from);

/* Completes a file whose trailer was written. */
void cmn_trailer_seal(unsigned char *file, size_t bytes);

/* The iteration in FILE of the form NAME-ITERATION.checkpoint, -1 when it is not of this form. */
long cmn_checkpoint_number(const char *file, const char *name);

/* An order by name and rank, for qsort and bsearch over pointers to entries. */
int cmn_entry_order(const void *a, const void *b);

/* A file that was read, see checkpoint_file.h. */
struct cmn_checkpoint_file {
    char *path;
    unsigned char *owned; /* the bytes, when they are this file's own */
    const unsigned char *bytes;
    size_t n;
    struct cmn_head head;
    struct cmn_entry *entry;
    const struct cmn_entry **sorted; /* by name and rank */
    void **restored; /* bytes with their zeros, by entry, once they were asked for */
    size_t entries;
};

/* Damaged: another one may be taken instead. Unusable: people have to do something first. */
enum cmn_outcome { CMN_INTACT, CMN_DAMAGED, CMN_UNUSABLE };

/* Checks bytes and n of a file that is otherwise empty, and fills in the rest. A reason comes with all outcomes but the first. */
enum cmn_outcome cmn_checkpoint_check(struct cmn_checkpoint_file *f);

/* What the snapshot holds, as a file of this iteration. Belongs to the snapshot. NULL with a reason. */
const void *cmn_snapshot_seal(struct cmn_snapshot *s, long iteration, size_t *bytes);

/* Empties it, and keeps its memory. */
void cmn_snapshot_clear(struct cmn_snapshot *s);

#endif
