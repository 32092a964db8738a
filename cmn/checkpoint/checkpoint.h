/* A checkpoint as a file: what it holds, how it comes to the disk, how it is read again. Knows bytes; what they mean is
 * training_checkpoint.c's business. Nothing here is collective, and nothing calls MPI.
 *
 * The file begins with what Darknet writes as weights, so that any Darknet reads it as a weights file. Behind them lie
 * sections: named bytes, each of one rank; then their index, and a trailer of fixed size with the lengths and the
 * checksums (XXH3, of each section, and of all that comes before it). Numbers are little-endian.
 * Its name is FOLDER/NAME-ITERATION.checkpoint; while it is written it has a name that begins with a dot, and that no one
 * can foresee. Only its owner can read it. */
#ifndef CMN_CHECKPOINT_FILE_H
#define CMN_CHECKPOINT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CMN_SECTION_NAME = 48, CMN_NO_RANK = -1 };

/* ---- what is to be written ---- */

struct cmn_snapshot;

/* Empty. NULL with a reason when memory is short. */
struct cmn_snapshot *cmn_snapshot_new(void);

/* The stream that Darknet is to write its weights to, before the first section; the snapshot owns it. NULL with a
 * reason. */
FILE *cmn_snapshot_weights(struct cmn_snapshot *s);

/* Adds a section; `data` is copied. `rank` may be CMN_NO_RANK: what all have alike. Leading and trailing zeros take (nearly) no room
 * in the file. The name has at most CMN_SECTION_NAME - 1 printable characters and no blanks, and is not "weights". 0, or -1 with a
 * reason. */
int cmn_snapshot_add(struct cmn_snapshot *s, const char *name, int rank, const void *data,
                     size_t bytes);

/* The same without a copy: the section's memory, to be filled before the next call for this snapshot, which ends its life. It begins
 * at a multiple of 16. NULL with a reason. */
void *cmn_snapshot_room(struct cmn_snapshot *s, const char *name, int rank, size_t bytes);

/* Adds a section of `rank` with the bytes of the one of this name that `as_rank` has; they are stored once. 0, or -1 with a
 * reason. */
int cmn_snapshot_same(struct cmn_snapshot *s, const char *name, int rank, int as_rank);

void cmn_snapshot_free(struct cmn_snapshot *s);

/* ---- writing, beside the training ---- */

struct cmn_writer;

/* Of the checkpoints of this name in this folder `keep` stay. What is left of an earlier process's unfinished ones is removed;
 * and what it had set aside for the first one of a training that starts over (cmn_writer_supersede) has its name again, where that one never
 * came.
 * NULL with a reason: also when another process writes checkpoints of this name there, which it names. That is held in the file
 * .NAME.checkpoint-lock until the writer is closed, or its process ends. */
struct cmn_writer *cmn_writer_open(const char *folder, const char *name, int keep);

/* An empty snapshot, with the memory of one that was written. NULL with a reason. */
struct cmn_snapshot *cmn_writer_snapshot(struct cmn_writer *w);

/* Takes the snapshot over, also when it fails. Blocks until the one before is on the disk; then a thread of its own writes this one: a
 * file that is complete, on the disk (fsync) and renamed, or none, and then the older ones stay. 0, or -1 with the
 * reason why a thread cannot be had. */
int cmn_writer_start(struct cmn_writer *w, struct cmn_snapshot *s, long iteration);

/* Blocks until nothing is being written. */
void cmn_writer_wait(struct cmn_writer *w);

/* What became of those begun since the last call. Returns the iteration of the latest that has failed (text: its file, and why), or 0; not blocking.
 * *written, which may be NULL: the iteration of the latest on the disk, or -1. */
long cmn_writer_result(struct cmn_writer *w, char *text, size_t bytes, long *written);

/* The training starts over: once the next one is on the disk, all others of this name are removed, and not before; but from when it is
 * there, none of the others is, not even for a moment. Blocks as cmn_writer_wait. */
void cmn_writer_supersede(struct cmn_writer *w);

/* Blocks until what was begun is written, or has failed. The writer is gone then. NULL is allowed. */
void cmn_writer_close(struct cmn_writer *w);

/* ---- reading ---- */

struct cmn_checkpoint_file;

/* Reads one file, whole. NULL with a reason that says what is wrong with it: unreadable, truncated, a wrong checksum, of a later
 * version. The caller frees. */
struct cmn_checkpoint_file *cmn_checkpoint_read(const char *file);

/* As cmn_checkpoint_read, but of bytes that the caller keeps as long as the file. It has no path. */
struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n);

/* The newest one of this name that is intact; `damaged` is called with the reason for each newer one that is not. NULL: there is
 * no checkpoint (then *reason_given is 0); or none is intact, or the folder or the newest cannot be read for want of rights or
 * memory, or it is of a later version (1, with a reason): starting over is then for people to decide. */
struct cmn_checkpoint_file *cmn_checkpoint_newest(const char *folder, const char *name,
                                                  void (*damaged)(const char *reason),
                                                  int *reason_given);

/* The iteration of the latest of this name, intact or not; -1: none. Reads no file. */
long cmn_checkpoint_latest(const char *folder, const char *name);

/* Whether what is left of this weights file, from where it is being read, is the rest of a checkpoint whose weights end here.
 * Leaves the stream where it was. */
int cmn_checkpoint_behind(FILE *weights);

const char *cmn_checkpoint_path(const struct cmn_checkpoint_file *f);
long cmn_checkpoint_iteration(const struct cmn_checkpoint_file *f);

/* When it was written, in seconds since 1970; its length; how many sections it has, the weights included. */
long long cmn_checkpoint_when(const struct cmn_checkpoint_file *f);
size_t cmn_checkpoint_bytes(const struct cmn_checkpoint_file *f);
size_t cmn_checkpoint_sections(const struct cmn_checkpoint_file *f);

struct cmn_checkpoint_section {
    const char *name;
    int rank;
    size_t bytes, stored; /* stored: 0 when another rank's are the same */
};

/* Section i, in the order of names and ranks. The file owns the name. */
void cmn_checkpoint_at(const struct cmn_checkpoint_file *f, size_t i,
                       struct cmn_checkpoint_section *section);

/* The section's bytes, zeros restored; the file owns them. "weights" is that of CMN_NO_RANK. NULL: there is none (*bytes is 0), or
 * memory is short (with a reason; *bytes is not 0). */
const void *cmn_checkpoint_section(const struct cmn_checkpoint_file *f, const char *name, int rank,
                                   size_t *bytes);

void cmn_checkpoint_free(struct cmn_checkpoint_file *f);

#endif
