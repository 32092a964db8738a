/* The checkpoints of one name in a folder, NAME-ITERATION.checkpoint: which there are, and
 * which are removed. Local, blocking (files). */
#ifndef CMN_CHECKPOINT_DIRECTORY_H
#define CMN_CHECKPOINT_DIRECTORY_H

#include <stddef.h>

/* The iteration in FILE of the form NAME-ITERATION.checkpoint; -1: it is not of this form. */
long cmn_directory_iteration(const char *file, const char *name);

/* Whether the file names for this name are short enough. */
int cmn_directory_takes(const char *name);

/* Opens a folder. Its descriptor, or -1 with a reason and errno. The caller closes it. */
int cmn_directory_open(const char *folder);

/* The iterations of the checkpoints in the folder, the latest first; the caller frees. *n: how
 * many. NULL when there is none (*n is 0), or with a reason (*n is -1). */
long *cmn_directory_list(int folder, const char *name, int *n);

/* Names are on the disk. 0, or -1 with errno. */
int cmn_directory_sync(int folder);

/* Removes checkpoints older than `iteration` but for `keep` - 1 (`keep` is 1 or more), and all
 * that are hidden. */
void cmn_directory_prune(int folder, const char *name, long iteration, int keep);

/* Gives all checkpoints a name under which nobody looks for them, before the first one of a
 * training that starts over takes its place. Whenever this process or the machine ends, either the
 * latest still has its own name, or none has. 0; -1 with errno, and all have their own names. */
int cmn_directory_hide(int folder, const char *name);

/* Undoes that, where no checkpoint has its own name: the one that was to come did not. 0, or -1
 * with errno. */
int cmn_directory_unhide(int folder, const char *name);

#endif
