/* Who trains under one name in a folder, and so writes its weights and checkpoints: one process at
 * a time, as the file .NAME.checkpoint-lock says. Local, blocking (files; up to 2 s for a process
 * that is ending).
 *
 * The file is the lock: whoever creates it has it. It names host, boot, process and attempt. One that a
 * dead process of this host left, or an earlier attempt of the same cmn-run or Slurm job, is taken
 * over; another host's is held. flock(2) is of no use: on network file systems it may hold on one
 * host alone, and says nothing of it. */
#ifndef CMN_CHECKPOINT_LOCK_H
#define CMN_CHECKPOINT_LOCK_H

/* Makes this process the only one that trains under this name in the folder, until
 * cmn_lock_release(). Returns the file's descriptor. -1 with a reason: another process has the lock, and is named, or
 * it cannot be had. */
int cmn_lock_take(int folder, const char *name);

/* Whether the lock's file is still there: it is not when the folder was removed and made anew, or a later
 * attempt has taken it over. */
int cmn_lock_holds(int lock);

/* Removes the lock's file, and closes it. */
void cmn_lock_release(int folder, const char *name, int lock);

#endif
