#include "checkpoint/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Hidden checkpoints are checkpoints of the name .NAME.superseded. */
#define SUPERSEDED ".superseded"
enum { DIGITS = 18 /* of an iteration */, FILE_ROOM = NAME_MAX + 64 };

long cmn_directory_iteration(const char *file, const char *name)
{
    size_t n = strlen(name), digits;

    if (strncmp(file, name, n) || file[n] != '-') {
        return -1;
    }
    file += n + 1;
    digits = strspn(file, "0123456789");
    if (!digits || digits > DIGITS || (*file == '0' && digits > 1) ||
        strcmp(file + digits, ".checkpoint")) {
        return -1;
    }
    return strtol(file, NULL, 10);
}

int cmn_directory_path(const char *folder, const char *name, long iteration, char *path)
{
    return snprintf(path, PATH_MAX, "%s/%s-%ld.checkpoint", folder, name, iteration) >= PATH_MAX
               ? -1
               : 0;
}

int cmn_directory_takes(const char *name)
{
    /* A hidden checkpoint, or one that is being written, has the longest name. */
    return strlen(name) + strlen("." SUPERSEDED "-.checkpoint") + DIGITS <= NAME_MAX;
}

int cmn_directory_open(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), reason = errno;

    if (fd < 0) {
        cmn_fail("%s: %s", folder, strerror(reason));
        errno = reason;
    }
    return fd;
}

/* Opens a new stream over the folder, which begins with its first entry; NULL with errno. */
static DIR *entries(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d && fd >= 0) {
        close(fd);
    }
    return d;
}

static int later_first(const void *a, const void *b)
{
    const long *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

long *cmn_directory_list(int folder, const char *name, int *n)
{
    long *list = NULL, iteration;
    int room = 0;
    struct dirent *e;
    DIR *d = entries(folder);

    *n = 0;
    if (!d) {
        *n = -1;
        cmn_fail("%s", strerror(errno));
        return NULL;
    }
    while ((errno = 0, e = readdir(d))) {
        iteration = cmn_directory_iteration(e->d_name, name);
        if (iteration < 0) {
            continue;
        }
        if (*n == room) {
            long *more = realloc(list, (size_t)(2 * room + 16) * sizeof *list);
            if (!more) {
                errno = ENOMEM;
                break;
            }
            list = more;
            room = 2 * room + 16;
        }
        list[(*n)++] = iteration;
    }
    if (errno) {
        cmn_fail("%s", strerror(errno));
        free(list);
        list = NULL;
        *n = -1;
    }
    closedir(d);
    if (list) {
        qsort(list, (size_t)*n, sizeof *list, later_first);
    }
    return list;
}

int cmn_directory_sync(int folder)
{
    return fsync(folder) && errno != EINVAL ? -1
                                            : 0; /* EINVAL: this file system needs no such call */
}

static void file_name(const char *name, long iteration, char *file)
{
    snprintf(file, FILE_ROOM, "%s-%ld.checkpoint", name, iteration);
}

static void hidden_name(const char *name, char *hidden)
{
    snprintf(hidden, NAME_MAX + 1, ".%s" SUPERSEDED, name);
}

/* Removes the checkpoints list[from], ..., list[n - 1]. */
static void remove_from(int folder, const char *name, const long *list, int n, int from)
{
    char file[FILE_ROOM];

    for (int i = from; i < n; i++) {
        file_name(name, list[i], file);
        unlinkat(folder, file, 0);
    }
}

/* Renames one checkpoint and syncs the folder, so that the next one is renamed only after this name
 * is on the disk: there is never an older checkpoint without the latest one. */
static int move(int folder, const char *from, const char *to, long iteration)
{
    char before[FILE_ROOM], after[FILE_ROOM];

    file_name(from, iteration, before);
    file_name(to, iteration, after);
    return renameat(folder, before, folder, after) || cmn_directory_sync(folder) ? -1 : 0;
}

/* Gives all hidden checkpoints their own names again, the latest first. 0, or -1 with errno. */
static int move_back(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n, result;
    long *list;

    hidden_name(name, hidden);
    list = cmn_directory_list(folder, hidden, &n);
    result = n < 0 ? -1 : 0;
    for (int i = 0; i < n && !result; i++) {
        result = move(folder, hidden, name, list[i]);
    }
    free(list);
    return result;
}

/* Removes all hidden checkpoints. 0, or -1 with errno. */
static int remove_hidden(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n;
    long *list;

    hidden_name(name, hidden);
    list = cmn_directory_list(folder, hidden, &n);
    if (n < 0) {
        return -1;
    }
    remove_from(folder, hidden, list, n, 0);
    free(list);
    return n ? cmn_directory_sync(folder) : 0;
}

int cmn_directory_hide(int folder, const char *name)
{
    char hidden[NAME_MAX + 1];
    int n = 0, reason, result = remove_hidden(folder, name);
    long *list = result ? NULL : cmn_directory_list(folder, name, &n);

    hidden_name(name, hidden);
    result = result || n < 0 ? -1 : 0;
    while (!result && n--) {
        result = move(folder, name, hidden, list[n]);
    }
    free(list);
    if (result) {
        reason = errno;
        move_back(folder, name);
        errno = reason;
    }
    return result;
}

int cmn_directory_unhide(int folder, const char *name)
{
    int n;

    free(cmn_directory_list(folder, name, &n));
    return n < 0 ? -1 : n ? 0 : move_back(folder, name);
}

void cmn_directory_prune(int folder, const char *name, long iteration, int keep)
{
    int n, latest = 0;
    long *list = cmn_directory_list(folder, name, &n);

    while (latest < n && list[latest] >= iteration) {
        latest++;
    }
    remove_from(folder, name, list, n, latest + keep - 1);
    free(list);
    remove_hidden(folder, name);
}
