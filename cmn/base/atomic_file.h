/* Files that are written under another name and take their own when they are complete: nobody sees half of one, what was
 * there before stays until then, and nobody can foresee the other name. All local. */
#ifndef CMN_ATOMIC_FILE_H
#define CMN_ATOMIC_FILE_H

#include <stddef.h>

/* Removes what earlier processes have left beside `file`, and makes a file there, with a name that goes to `name` (of `bytes`), readable by its owner alone, and locked while
 * it is open. The file descriptor, which the caller closes; or -1 with errno. */
int cmn_atomic_open(const char *file, char *name, size_t bytes);

/* The file is complete: it gets the rights that umask leaves, and takes its place. 0, or -1 with errno; then it is removed. */
int cmn_atomic_commit(int fd, const char *name, const char *file);

/* The same with rights that are given, e.g. 0600. */
int cmn_atomic_commit_as(int fd, const char *name, const char *file, unsigned mode);

/* Removes from a folder what processes of this user that have ended (SIGKILL) have left of such files, and of tries whether
 * the folder can be written. Who still writes has locked its file. */
void cmn_atomic_sweep(const char *folder);

/* Opens a file that is written in its place, with `flags` of open(2), and the rights that umask leaves when it is made. Not through
 * a symbolic link that another user has put there. `what` the file is. The file descriptor, which the caller closes; or -1
 * with a reason. */
int cmn_open_in_place(const char *what, const char *file, int flags);

#endif
