/* A file without a name (memfd, or O_TMPFILE) that one process of a node has and others open: it leaves nothing behind. */
#ifndef CMN_SHARED_FILE_H
#define CMN_SHARED_FILE_H

#include <stdint.h>
#include <sys/types.h>

/* Which file of which process it is, and the number in it that proves it: in another container the
 * process id is another process, whose file must not be touched. For a message to the others. */
struct cmn_shared_file {
    long process, file; /* no file: -1 */
    uint64_t token;
};

/* Local. Writes a token into the file at `at`, and says in *f where others find it. 0, or -1 with
 * errno. The caller keeps the descriptor open until all have joined. */
int cmn_shared_file_offer(struct cmn_shared_file *f, int fd, off_t at);

/* Local. A descriptor of what another process, or this one, has offered, or -1 with a reason. The
 * caller closes it. */
int cmn_shared_file_join(const struct cmn_shared_file *f, off_t at);

#endif
