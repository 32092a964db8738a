/* The lock of a name in a folder: only one process at a time may train under the name, and so write
 * its weights and checkpoints. Local, blocking (files; up to 2 s for a process that is ending).
 *
 * The lock is the file .NAME.checkpoint-lock: the process that creates it has the lock. The file
 * names the host, its boot, the process and the attempt. A lock is taken over if a dead process of
 * this host left it, or an earlier attempt of the same cmn-run or Slurm job. Any other lock of
 * another host counts as held. flock(2) does not work here: on network file systems it may exclude
 * only processes of one host, without an error. */
#ifndef CMN_CHECKPOINT_LOCK_H
#define CMN_CHECKPOINT_LOCK_H

/* Takes the lock, which this process holds until cmn_lock_release(). Returns the file's descriptor.
 * -1 with a reason: another process has the lock, and the reason names it, or the file cannot be
 * made. */
int cmn_lock_take(int folder, const char *name);

/* Returns whether this process still has the lock of this name in the folder. It has not if another
 * folder has taken this one's place, or a later attempt has taken the lock over. */
int cmn_lock_holds(int folder, const char *name, int lock);

/* Closes the lock's file, and removes it if it is still this process's. `folder` may be -1: then
 * the file is only closed. */
void cmn_lock_release(int folder, const char *name, int lock);

#endif
