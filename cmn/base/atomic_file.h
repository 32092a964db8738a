/* atomic_file: atomic replacement of files. Local.
 *
 * A file is written without a name (O_TMPFILE). When it is complete it gets a temporary name and is
 * renamed immediately, so a process that is killed while it writes leaves nothing behind. Where the
 * file system has no unnamed files, the file is written under its temporary name. Readers see the
 * old file or the new one, never a part of it. Temporary names are unpredictable. */
#ifndef CMN_ATOMIC_FILE_H
#define CMN_ATOMIC_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Removes the temporary files that dead processes left for `file`, and creates a new file in the
 * same folder. Only its owner can read it, and it is locked while it is open. Writes its name to
 * `name` (room for `bytes` bytes), or "" if the file has no name. A caller that gives up unlinks
 * `name`. Returns the file descriptor, which the caller closes, or -1 with errno. */
int cmn_atomic_open(const char *file, char *name, size_t bytes);

/* Publishes a complete file: gives it the permissions that the umask leaves, and renames it to
 * `file`. Returns 0, or -1 with errno after removing the file. The caller closes `fd` in both
 * cases. */
int cmn_atomic_commit(int fd, const char *name, const char *file);

/* Does the same with the permissions `mode`, e.g. 0600. */
int cmn_atomic_commit_as(int fd, const char *name, const char *file, unsigned mode);

/* A draft is a new file that is written by a stream, and is to replace another one. */
struct cmn_draft {
    FILE *out;       /* NULL: there is none */
    char name[4200]; /* as in cmn_atomic_open() */
};

/* Returns 0, or -1 with errno. */
int cmn_draft_open(struct cmn_draft *d, const char *file);

/* Publishes the file. Returns 0, or -1 with errno; then what was written is gone, and `file` is what
 * it was, unless only closing it has failed. */
int cmn_draft_commit(struct cmn_draft *d, const char *file);

/* Removes what was written, if there is a draft. Keeps errno. */
void cmn_draft_drop(struct cmn_draft *d);

/* Removes from a folder the temporary files of results and the probe files that dead processes of
 * this user left there. Keeps a file that is younger than a minute, or locked because it is still
 * being written. */
void cmn_atomic_sweep(const char *folder);

/* Removes the temporary files, of any age, that were to become a file for which is(file, of)
 * returns true. The caller makes sure that no other process creates one meanwhile. */
void cmn_atomic_sweep_of(const char *folder, int (*is)(const char *file, const void *of),
                         const void *of);

/* Opens a file that is written in place (a log), with `flags` of open(2) and the permissions that
 * the umask leaves. Refuses a symbolic link that belongs to another user, except root. `what` names
 * the kind of file in messages. Returns the file descriptor, which the caller closes, or -1 with a
 * reason. */
int cmn_open_in_place(const char *what, const char *file, int flags);

/* Appends a record to a file that cmn_open_in_place() opened, by one write(), so a process that is
 * killed leaves only whole records. If the disk is full, cuts off the part of the record that was
 * written. Returns 0, or -1 with a reason. */
int cmn_append(const char *what, const char *file, int fd, const void *record, size_t bytes);

/* Blocks until all appended records are on the disk. Thread-safe. Returns 0, or -1 with errno.
 * Returns 0 if the descriptor is no file on a disk, such as a pipe. */
int cmn_sync_in_place(int fd);

#endif
