/* The checkpoints of one name in a folder: which there are, who writes them, which go. Local, blocking (files). */
#ifndef CMN_CHECKPOINT_FOLDER_H
#define CMN_CHECKPOINT_FOLDER_H

#include <stddef.h>

/* Opens a folder. Its descriptor, or -1 with a reason and errno. The caller closes it. */
int cmn_directory_open(const char *folder);

/* The iterations of those in the folder, the latest first; the caller frees. *n tells how many. NULL when there is
 * none (*n is 0), or with a reason (*n is -1). */
long *cmn_directory_list(int folder, const char *name, int *n);

/* Makes this process the only one that writes checkpoints of this name there, as long as the descriptor that it returns stays
 * open. -1 with a reason, which names the process that is it already; -2 where the file system knows no locks. */
int cmn_directory_lock(int folder, const char *name);

/* Whether the lock still stands for the folder: it does not when the folder was removed and made anew. */
int cmn_directory_locked(int lock);

/* Takes the lock's file away, and closes it. */
void cmn_directory_unlock(int folder, const char *name, int lock);

/* Removes files that processes which have ended did not complete. */
void cmn_directory_sweep(int folder, const char *name);

/* A new file, only its owner's, with a name that no one can foresee, of which cmn_directory_sweep knows that it is not complete. Its
 * descriptor, or -1 with errno. */
int cmn_directory_draft(const char *folder, const char *name, char *file, size_t bytes);

/* Names are on the disk. 0, or -1 with errno. */
int cmn_directory_sync(int folder);

/* Removes older ones than `iteration` but for `keep` - 1 (`keep` is 1 or more), and all that are set aside. */
void cmn_directory_prune(int folder, const char *name, long iteration, int keep);

/* Gives all another name, under which none is looked for, before one of a training that starts over comes. Whenever this process or the
 * machine ends, the latest still has its own name, or none has. 0; -1 with errno, and all have their own. */
int cmn_directory_hide(int folder, const char *name);

/* Undoes that, where none is there: the one that was to come did not. 0, or -1 with errno. */
int cmn_directory_unhide(int folder, const char *name);

#endif
