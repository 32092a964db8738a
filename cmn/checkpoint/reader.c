/* Checkpoints are read: the newest of a folder, and what one holds. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory.h"
#include "checkpoint/format.h"
#include "base/log.h"
#include "base/status.h"

void cmn_checkpoint_free(struct cmn_checkpoint_file *f)
{
    if (!f) {
        return;
    }
    for (size_t i = 0; i < f->entries && f->restored; i++) {
        free(f->restored[i]);
    }
    free(f->restored);
    free(f->sorted);
    free(f->entry);
    free(f->owned);
    free(f->path);
    free(f);
}

struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n)
{
    struct cmn_checkpoint_file *f = calloc(1, sizeof *f);

    if (!f) {
        cmn_fail("out of memory");
        return NULL;
    }
    f->bytes = bytes;
    f->n = n;
    if (cmn_checkpoint_check(f) != CMN_INTACT) {
        cmn_checkpoint_free(f);
        return NULL;
    }
    return f;
}

/* Whether the file may be as good as any, and this process is what lacks something. */
static int lacks(int reason)
{
    return reason == EACCES || reason == EPERM || reason == ENOMEM || reason == EMFILE ||
           reason == ENFILE;
}

enum { PIECE = 16 << 20 };

/* The whole file. */
static enum cmn_outcome load(struct cmn_checkpoint_file *f, const char *path)
{
    /* Not blocking: it may be a pipe that someone has put there. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), reason;
    struct stat st;
    ssize_t got = 1;

    if (fd < 0 || fstat(fd, &st)) {
        reason = errno;
        cmn_fail("%s", strerror(reason));
        if (fd >= 0) {
            close(fd);
        }
        return lacks(reason) ? CMN_UNUSABLE : CMN_DAMAGED;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        cmn_fail("is no regular file");
        return CMN_DAMAGED;
    }
    f->owned = aligned_alloc(CMN_ALIGN, (size_t)cmn_aligned((uint64_t)st.st_size + 1));
    if (!f->owned) {
        close(fd);
        cmn_fail("out of memory for its %lld bytes", (long long)st.st_size);
        return CMN_UNUSABLE;
    }
    f->bytes = f->owned;
    while (f->n < (size_t)st.st_size && got) {
        size_t rest = (size_t)st.st_size - f->n;
        got = read(fd, f->owned + f->n, rest < PIECE ? rest : PIECE);
        if (got < 0 && errno != EINTR) {
            cmn_fail("%s", strerror(errno));
            close(fd);
            return CMN_DAMAGED;
        }
        f->n += got > 0 ? (size_t)got : 0;
        cmn_status_progress(); /* a slow disk is no rank that stands still */
    }
    close(fd);
    return CMN_INTACT;
}

static struct cmn_checkpoint_file *read_file(const char *path, enum cmn_outcome *outcome)
{
    struct cmn_checkpoint_file *f = calloc(1, sizeof *f);

    *outcome = CMN_UNUSABLE;
    if (f && (f->path = strdup(path))) {
        *outcome = load(f, path);
        if (*outcome == CMN_INTACT) {
            *outcome = cmn_checkpoint_check(f);
        }
    } else {
        cmn_fail("out of memory");
    }
    if (*outcome != CMN_INTACT) {
        cmn_fail_in("%s", path);
        cmn_checkpoint_free(f);
        return NULL;
    }
    return f;
}

struct cmn_checkpoint_file *cmn_checkpoint_read(const char *file)
{
    enum cmn_outcome outcome;

    return read_file(file, &outcome);
}

const char *cmn_checkpoint_path(const struct cmn_checkpoint_file *f)
{
    return f->path;
}

long cmn_checkpoint_iteration(const struct cmn_checkpoint_file *f)
{
    return (long)f->head.iteration;
}

size_t cmn_checkpoint_sections(const struct cmn_checkpoint_file *f)
{
    return f->entries;
}

/* The index of a section, or -1. */
static long find(const struct cmn_checkpoint_file *f, const char *name, int rank)
{
    struct cmn_entry wanted = {.rank = rank};
    const struct cmn_entry *key = &wanted, **at;

    if (strlen(name) >= sizeof wanted.name) {
        return -1;
    }
    memcpy(wanted.name, name, strlen(name) + 1);
    at = bsearch(&key, f->sorted, f->entries, sizeof *f->sorted, cmn_entry_order);
    return at ? (long)(*at - f->entry) : -1;
}

const void *cmn_checkpoint_section(const struct cmn_checkpoint_file *f, const char *name, int rank,
                                   size_t *bytes)
{
    long i = find(f, name, rank);
    const struct cmn_entry *e;

    *bytes = 0;
    if (i < 0) {
        return NULL;
    }
    if (f->entry[i].same) {
        i = (long)f->entry[i].same - 1;
    }
    e = &f->entry[i];
    *bytes = (size_t)e->bytes;
    if (e->stored == e->bytes) {
        return f->bytes + e->offset;
    }
    if (!f->restored[i]) {
        f->restored[i] = calloc(1, (size_t)e->bytes);
        if (!f->restored[i]) {
            cmn_fail("out of memory for section %s of %zu bytes", name, *bytes);
            return NULL;
        }
        memcpy((char *)f->restored[i] + e->lead, f->bytes + e->offset, (size_t)e->stored);
    }
    return f->restored[i];
}

void cmn_checkpoint_at(const struct cmn_checkpoint_file *f, size_t i,
                       struct cmn_checkpoint_section *section)
{
    const struct cmn_entry *e = f->sorted[i];

    section->name = e->name;
    section->rank = e->rank;
    section->bytes = (size_t)e->bytes;
    section->stored = e->same ? 0 : (size_t)e->stored;
}

long long cmn_checkpoint_when(const struct cmn_checkpoint_file *f)
{
    return (long long)f->head.when;
}

size_t cmn_checkpoint_bytes(const struct cmn_checkpoint_file *f)
{
    return f->n;
}

/* Those of this name in the folder, the latest first. *n is 0 when there is no such folder, and -1, with a reason, when it cannot
 * be read. */
static long *list(const char *folder, const char *name, int *n)
{
    int fd = cmn_directory_open(folder);
    long *all;

    if (fd < 0) {
        *n = errno == ENOENT ? 0 : -1;
        return NULL;
    }
    all = cmn_directory_list(fd, name, n);
    if (*n < 0) {
        cmn_fail_in("%s", folder);
    }
    close(fd);
    return all;
}

long cmn_checkpoint_latest(const char *folder, const char *name)
{
    int n;
    long *all = list(folder, name, &n), latest = n > 0 ? all[0] : -1;

    free(all);
    return latest;
}

static struct cmn_checkpoint_file *read_number(const char *folder, const char *name, long iteration,
                                               enum cmn_outcome *outcome)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s-%ld.checkpoint", folder, name, iteration);
    struct cmn_checkpoint_file *f;

    if (n < 0 || (size_t)n >= sizeof path) {
        *outcome = CMN_UNUSABLE;
        cmn_fail("%s: %s", folder, strerror(ENAMETOOLONG));
        return NULL;
    }
    f = read_file(path, outcome);
    if (f && f->head.iteration != iteration) {
        *outcome = CMN_DAMAGED;
        cmn_fail("%s: it is of iteration %lld, not of that of its name", path,
                 (long long)f->head.iteration);
        cmn_checkpoint_free(f);
        f = NULL;
    }
    return f;
}

struct cmn_checkpoint_file *cmn_checkpoint_newest(const char *folder, const char *name,
                                                  void (*damaged)(const char *reason),
                                                  int *reason_given)
{
    struct cmn_checkpoint_file *f = NULL;
    enum cmn_outcome outcome = CMN_DAMAGED;
    int n;
    long *all = list(folder, name, &n);

    for (int i = 0; i < n && outcome == CMN_DAMAGED; i++) {
        f = read_number(folder, name, all[i], &outcome);
        if (outcome == CMN_DAMAGED) {
            damaged(cmn_reason());
        }
    }
    if (n > 0 && outcome == CMN_DAMAGED) {
        cmn_fail("%s: none of the %d checkpoints of %s is intact", folder, n, name);
    }
    free(all);
    *reason_given = n != 0 && !f;
    return f;
}

int cmn_checkpoint_behind(FILE *weights)
{
    unsigned char head[CMN_HEAD];
    struct cmn_head h;
    long at = ftell(weights);
    int is = at >= 0 && !fseek(weights, (long)cmn_aligned((uint64_t)at), SEEK_SET) &&
             fread(head, sizeof head, 1, weights) == 1 && !cmn_head_read(&h, head) &&
             h.weights == (uint64_t)at;

    if (at >= 0) {
        fseek(weights, at, SEEK_SET);
    }
    return is;
}
