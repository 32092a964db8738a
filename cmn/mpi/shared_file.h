/* shared_file: an unnamed file (memfd or O_TMPFILE) that one process of a node has and others open.
 * It leaves nothing behind. */
#ifndef CMN_SHARED_FILE_H
#define CMN_SHARED_FILE_H

#include <stdint.h>
#include <sys/types.h>

/* Tells other processes which file of which process to open; it is sent in a message. The token in
 * the file proves that it is the right file: in another container the process id is another
 * process, whose file must not be touched. */
struct cmn_shared_file {
    long process, file; /* process id and descriptor; -1: no file */
    uint64_t token;
};

/* Local. Writes a token into the file at offset `at`, and fills *f. Returns 0, or -1 with errno.
 * The caller keeps the descriptor open until all have joined. */
int cmn_shared_file_offer(struct cmn_shared_file *f, int fd, off_t at);

/* Local. Opens a file that another process, or this one, has offered. Returns a descriptor, which
 * the caller closes, or -1 with a reason. */
int cmn_shared_file_join(const struct cmn_shared_file *f, off_t at);

#endif
