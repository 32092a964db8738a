/* The checkpoints of one name in a folder, NAME-ITERATION.checkpoint: listing, hiding and removing
 * them. Local, blocking (files). */
#ifndef CMN_CHECKPOINT_DIRECTORY_H
#define CMN_CHECKPOINT_DIRECTORY_H

#include <stddef.h>

/* Returns the iteration in a file name of the form NAME-ITERATION.checkpoint; -1: it has another
 * form. */
long cmn_directory_iteration(const char *file, const char *name);

/* Writes the path of the checkpoint of that iteration to `path` (PATH_MAX bytes). 0, or -1 if it is
 * too long. */
int cmn_directory_path(const char *folder, const char *name, long iteration, char *path);

/* Returns whether the name is short enough for all file names that contain it. */
int cmn_directory_takes(const char *name);

/* Opens a folder. Returns its descriptor, which the caller closes, or -1 with a reason and
 * errno. */
int cmn_directory_open(const char *folder);

/* Returns the iterations of the *n checkpoints in the folder, the latest first. The caller frees
 * the list. NULL if there is none (*n is 0), or with a reason (*n is -1). */
long *cmn_directory_list(int folder, const char *name, int *n);

/* Blocks until the folder's names are on the disk. 0, or -1 with errno. */
int cmn_directory_sync(int folder);

/* Removes the checkpoints before `iteration` except for the latest `keep` - 1 of them (`keep` is at
 * least 1), and all hidden ones. */
void cmn_directory_prune(int folder, const char *name, long iteration, int keep);

/* Hides all checkpoints, i.e. renames them so that no reader finds them, before the first
 * checkpoint of a training that starts over gets its name. If this process or the machine stops at
 * any moment, either the latest checkpoint still has its own name, or none has. 0, or -1 with
 * errno; then the checkpoints have their own names again. */
int cmn_directory_hide(int folder, const char *name);

/* Undoes cmn_directory_hide() if no checkpoint has its own name, because then the new checkpoint
 * was not written. 0, or -1 with errno. */
int cmn_directory_unhide(int folder, const char *name);

#endif
