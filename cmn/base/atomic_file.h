/* Atomic replacement of files: a file is written without a name, gets a temporary one when it is
 * complete, and is renamed at once: a process that is killed while it writes leaves nothing. Where
 * the file system has no files without a name it is written under the temporary one. Readers see
 * the old file or the new one, never a part of it. Temporary names are unpredictable. Local. */
#ifndef CMN_ATOMIC_FILE_H
#define CMN_ATOMIC_FILE_H

#include <stddef.h>

/* Removes temporary files that dead processes left for `file`, and creates a new one beside it:
 * readable by its owner alone and locked while it is open. Its name goes to `name` (room for
 * `bytes`): "" where it has none. The caller who gives up unlinks `name`. Returns the file
 * descriptor, which the caller closes, or -1 with errno. */
int cmn_atomic_open(const char *file, char *name, size_t bytes);

/* The file is complete: gives it the rights that umask leaves and renames it to `file`. 0, or -1
 * with errno after removing it. */
int cmn_atomic_commit(int fd, const char *name, const char *file);

/* The same with rights of the caller's choice, e.g. 0600. */
int cmn_atomic_commit_as(int fd, const char *name, const char *file, unsigned mode);

/* Removes from a folder the temporary and probe files that dead processes of this user left there.
 * A file that is still being written is locked and stays. */
void cmn_atomic_sweep(const char *folder);

/* The same for temporary files of any age that were to become a file for which is(file, of) says
 * yes. The caller makes sure that no other process creates one meanwhile. */
void cmn_atomic_sweep_of(const char *folder, int (*is)(const char *file, const void *of),
                         const void *of);

/* Opens a file that is written in place (a log), with `flags` of open(2) and the rights that umask
 * leaves. Refuses a symbolic link of another user. `what` names the kind of file in messages.
 * Returns the file descriptor, which the caller closes, or -1 with a reason. */
int cmn_open_in_place(const char *what, const char *file, int flags);

/* Appends to a file that cmn_open_in_place() has opened, by one write(): a process that is killed
 * leaves whole records. What a full disk took of a record is cut off. 0, or -1 with a reason. */
int cmn_append(const char *what, const char *file, int fd, const void *record, size_t bytes);

/* Blocks until what was appended is on the disk; thread-safe. 0, or -1 with errno; 0 for what is no
 * file on a disk, such as a pipe. */
int cmn_sync_in_place(int fd);

#endif
