#include "trainer/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"

/* Resolves symbolic links of the user or of root; refuses those of other users. Returns 0, or -1
 * with errno. */
static int target_of(const char *file, char *target)
{
    struct stat st;

    if (!lstat(file, &st) && S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid) {
        errno = ELOOP;
        return -1;
    }
    if (!realpath(file, target)) {
        snprintf(target, PATH_MAX, "%s", file);
    }
    return 0;
}

/* Syncs the folder's new entry to the disk, if the file system needs that. Returns 0, or -1 with
 * errno. */
static int sync_folder_of(const char *file)
{
    char copy[PATH_MAX];
    int fd, failed, reason;

    snprintf(copy, sizeof copy, "%s", file);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* a folder can be writable but not readable */
    }
    failed = fsync(fd) && errno != EINVAL;
    reason = errno;
    close(fd);
    errno = reason;
    return failed ? -1 : 0;
}

/* Returns 0, or errno. A device or a pipe is written to, not replaced. */
static int replace(const char *file, cmn_weights_writer *writes, void *what)
{
    char name[PATH_MAX] = "";
    struct stat st;
    int direct = !stat(file, &st) && !S_ISREG(st.st_mode);
    int fd = direct ? open(file, O_WRONLY | O_CLOEXEC) : cmn_atomic_open(file, name, sizeof name);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    int failed, reason;

    if (!out) {
        return errno;
    }
    writes(what, out);
    failed = fflush(out) || ferror(out) || (!direct && fsync(fd));
    reason = errno;
    if (failed) {
        unlink(name);
    } else if (!direct) {
        failed = cmn_atomic_commit(fd, name, file) || sync_folder_of(file);
        reason = errno;
    }
    fclose(out);
    return !failed ? 0 : reason ? reason : EIO;
}

int cmn_weights_file_replace(const char *file, cmn_weights_writer *writes, void *what)
{
    char target[PATH_MAX];

    return target_of(file, target) ? errno : replace(target, writes, what);
}

static void write_weights(void *what, FILE *out)
{
    struct cmn_model *m = what;

    cmn_net_write_weights(m->net, out);
}

int cmn_weights_file_write(struct cmn_model *m, const char *file)
{
    errno = cmn_weights_file_replace(file, write_weights, m);
    return errno ? -1 : 0;
}

size_t cmn_weights_file_seen(const char *name)
{
    int version[3], few;
    size_t seen = 0;
    struct stat st; /* opening a pipe would wait for its writer */
    FILE *file = !stat(name, &st) && S_ISREG(st.st_mode) ? fopen(name, "rb") : NULL;

    if (file && fread(version, sizeof *version, 3, file) == 3) {
        if (version[0] < 1000 && version[1] < 1000 && 10L * version[0] + version[1] >= 2) {
            seen = fread(&seen, sizeof seen, 1, file) == 1 ? seen : 0;
        } else {
            seen = fread(&few, sizeof few, 1, file) == 1 && few > 0 ? (size_t)few : 0;
        }
    }
    if (file) {
        fclose(file);
    }
    return seen;
}

void cmn_weights_file_keep_newer(const char *file, size_t seen)
{
    size_t there = cmn_weights_file_seen(file);
    char older[PATH_MAX];
    int number = 1;

    if (there <= seen) {
        return;
    }
    do {
        if (snprintf(older, sizeof older, "%s.%d", file, number++) >= (int)sizeof older) {
            return;
        }
    } while (!access(older, F_OK));
    if (rename(file, older)) {
        cmn_warn("%s has seen %zu images, more than the %zu of this training, which replaces it",
                 file, there, seen);
    } else {
        cmn_warn("%s has seen %zu images, more than the %zu of this training: it is kept as %s",
                 file, there, seen, older);
    }
}
