#include "checkpoint/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/values.h"
#include "checkpoint/directory.h"

/* The caller may use an older checkpoint instead of a damaged one. One that may be intact, but
 * cannot be used, needs the user's decision first. Returns -1; the reason was given. */
static int unusable(struct cmn_checkpoint_file *f)
{
    f->unusable = 1;
    return -1;
}

/* ---- the mark ---- */

/* Returns whether a mark stands at the byte at which, by its own account, the weights end; weights
 * that look like a mark do not pass. In other versions of the format some bytes may lie between the
 * two. */
static int is_in_its_place(const struct cmn_mark *m, uint64_t at)
{
    return m->version == CMN_CHECKPOINT_VERSION ? m->weights == at : m->weights <= at;
}

static int find_mark(struct cmn_checkpoint_file *f)
{
    const unsigned char *end = f->bytes + f->n, *at = f->bytes;

    while ((at = cmn_mark_find(at, (size_t)(end - at)))) {
        if (end - at >= CMN_MARK && !cmn_mark_read(&f->mark, at) &&
            is_in_its_place(&f->mark, (uint64_t)(at - f->bytes))) {
            return 0;
        }
        at++;
    }
    return f->n ? cmn_fail(
                      "truncated, damaged, or no checkpoint: no mark behind weights (it has %zu "
                      "bytes)",
                      f->n)
                : cmn_fail("it is empty");
}

static int check_lengths(struct cmn_checkpoint_file *f)
{
    const struct cmn_mark *m = &f->mark;
    uint64_t begin = m->weights + CMN_MARK; /* within the file, as find_mark() has checked */

    if (m->version != CMN_CHECKPOINT_VERSION) {
        cmn_fail("its format is version %u, and this program reads version %d: only its weights "
                 "can be used, as a weights file",
                 m->version, CMN_CHECKPOINT_VERSION);
        return unusable(f);
    }
    if (m->file != f->n) {
        return cmn_fail(f->n < m->file ? "truncated: %zu of %llu bytes"
                                       : "it has %zu bytes, and should have %llu",
                        f->n, (unsigned long long)m->file);
    }
    if (m->header > f->n - begin || (begin + m->header) % CMN_ALIGN) {
        return cmn_fail("its header has an impossible length");
    }
    return 0;
}

/* ---- the header ---- */

/* Returns whether the text has more JSON values than a header of its length can have. cJSON takes
 * about 100 bytes for each value, even for one of one character; a header has at least 12
 * characters for each value. */
static int has_too_many_values(const char *text, size_t n)
{
    size_t values = 0;
    int in_string = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += text[i] == '\\';
        } else {
            values += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return values > n / 8 + 64;
}

/* Returns the value of a whole number from 0 to `most`, or -1. */
static long long whole(const cJSON *object, const char *name, double most)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;

    if (!(value >= 0 && value <= most) || (double)(long long)value < value) {
        return -1;
    }
    return (long long)value;
}

/* Returns whether the object holds the checksum of these bytes under that name. */
static int has_check(const cJSON *object, const char *name, const void *bytes, size_t n)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16 &&
           cmn_checks(bytes, n, strtoull(text, NULL, 16));
}

static int read_header(struct cmn_checkpoint_file *f)
{
    const struct cmn_mark *m = &f->mark;
    const char *text = (const char *)f->bytes + m->weights + CMN_MARK, *end = NULL;

    if (!cmn_checks(text, m->header, m->header_check)) {
        return cmn_fail("its header: wrong checksum");
    }
    if (has_too_many_values(text, m->header)) {
        return cmn_fail("its header: too many values for its length");
    }
    f->header = cJSON_ParseWithLengthOpts(text, m->header, &end, 0);
    while (f->header && end < text + m->header && *end == ' ') {
        end++;
    }
    if (!f->header || end < text + m->header) {
        return cmn_fail("its header: no JSON");
    }
    f->iteration = (long)whole(f->header, "iteration", CMN_MOST_EXACT);
    f->written = whole(f->header, "written", CMN_MOST_EXACT);
    f->training = cJSON_GetObjectItemCaseSensitive(f->header, "training");
    if (f->iteration < 0 || f->written < 0 || !cJSON_IsObject(f->training)) {
        return cmn_fail("its header: no iteration, time or description of the training");
    }
    if (!has_check(f->header, "weights", f->bytes, m->weights)) {
        return cmn_fail("weights: wrong checksum");
    }
    return 0;
}

/* ---- tensors ---- */

static int damaged_tensor(const struct cmn_checkpoint_tensor *t, const char *what)
{
    char rank[32] = "";

    if (t->rank != CMN_ALL_RANKS) {
        snprintf(rank, sizeof rank, " of rank %d", t->rank);
    }
    return cmn_fail("tensor %s%s: %s", t->name, rank, what);
}

/* Reads a tensor whose bytes are a part of the weights, so that their checksum covers it. It must
 * be common to all ranks. */
static int find_in_weights(const struct cmn_checkpoint_file *f, const cJSON *item,
                           struct cmn_checkpoint_tensor *t, size_t bytes)
{
    long long at = whole(item, "at", CMN_MOST_EXACT);

    if (at < 0 || at % (long long)sizeof(float) || t->rank != CMN_ALL_RANKS ||
        bytes > f->mark.weights || (size_t)at > f->mark.weights - bytes) {
        return damaged_tensor(t, "it is not within the weights");
    }
    t->data = f->bytes + at;
    t->bytes = bytes;
    t->in_weights = 1;
    return 0;
}

/* Reads one tensor. *at is the byte at which it begins, and becomes that of the next one. */
static int read_tensor(const struct cmn_checkpoint_file *f, const cJSON *item,
                       struct cmn_checkpoint_tensor *t, size_t *at)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "name"));
    long long rank = whole(item, "rank", INT_MAX), bytes = whole(item, "bytes", CMN_MOST_EXACT);
    size_t left = f->n - *at; /* both are multiples of CMN_ALIGN */

    if (!name || !cmn_tensor_name_is_valid(name)) {
        return cmn_fail("its header: a tensor without a proper name");
    }
    memcpy(t->name, name, strlen(name) + 1);
    t->rank = (int)rank;
    if (rank < 0 && cJSON_GetObjectItemCaseSensitive(item, "rank")) {
        return damaged_tensor(t, "its rank is no rank");
    }
    if (bytes >= 0 && cJSON_GetObjectItemCaseSensitive(item, "at")) {
        return find_in_weights(f, item, t, (size_t)bytes);
    }
    if (bytes < 0 || (size_t)bytes > left) {
        return damaged_tensor(t, "it has an impossible length");
    }
    t->data = f->bytes + *at;
    t->bytes = (size_t)bytes;
    *at += cmn_aligned(t->bytes);
    return has_check(item, "xxh3", t->data, cmn_aligned(t->bytes))
               ? 0
               : damaged_tensor(t, "wrong checksum");
}

static int order(const void *a, const void *b)
{
    const struct cmn_checkpoint_tensor *x = a, *y = b;
    int names = strcmp(x->name, y->name);

    return names ? names : (x->rank > y->rank) - (x->rank < y->rank);
}

static int read_tensors(struct cmn_checkpoint_file *f)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(f->header, "tensors"), *item;
    size_t at = f->mark.weights + CMN_MARK + f->mark.header;

    if (!cJSON_IsArray(list) || f->n % CMN_ALIGN) {
        return cmn_fail("its header: no tensors, or a length that no file of tensors has");
    }
    f->tensor = cmn_calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *f->tensor);
    cJSON_ArrayForEach(item, list)
    {
        if (read_tensor(f, item, &f->tensor[f->tensors], &at)) {
            return -1;
        }
        f->tensors++;
    }
    if (at != f->n) {
        return cmn_fail("%zu bytes too many behind its last tensor", f->n - at);
    }
    qsort(f->tensor, f->tensors, sizeof *f->tensor, order);
    for (size_t i = 1; i < f->tensors; i++) {
        if (!order(&f->tensor[i - 1], &f->tensor[i])) {
            return damaged_tensor(&f->tensor[i], "it is there twice");
        }
    }
    return 0;
}

static int parse(struct cmn_checkpoint_file *f)
{
    return find_mark(f) || check_lengths(f) || read_header(f) || read_tensors(f) ? -1 : 0;
}

struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n)
{
    struct cmn_checkpoint_file *f = cmn_calloc(1, sizeof *f);

    f->bytes = bytes;
    f->n = n;
    if (parse(f)) {
        cmn_checkpoint_free(f);
        return NULL;
    }
    return f;
}

/* ---- a file ---- */

/* Returns whether this value of errno says that the process lacks rights, memory or descriptors.
 * Then the file may be intact. */
static int lacks(int reason)
{
    return reason == EACCES || reason == EPERM || reason == ENOMEM || reason == EMFILE ||
           reason == ENFILE;
}

static int failed(struct cmn_checkpoint_file *f, int reason)
{
    cmn_fail("%s", strerror(reason));
    return lacks(reason) ? unusable(f) : -1;
}

/* Returns whether the owner is this user or root, or the owner that a new file of this process gets
 * beside it: NFS with root_squash gives root's files to another user. */
static int is_ours(const char *path, uid_t owner)
{
    char name[PATH_MAX];
    struct stat st;
    int fd, same;

    if (owner == geteuid() || owner == 0) {
        return 1;
    }
    fd = cmn_atomic_open(path, name, sizeof name);
    if (fd < 0) {
        return 0;
    }
    same = !fstat(fd, &st) && st.st_uid == owner;
    unlink(name);
    close(fd);
    return same;
}

/* Refuses, with `own`, a file of another user, because the owner of a checkpoint decides what the
 * training becomes. */
static int read_all(struct cmn_checkpoint_file *f, int fd, int own)
{
    enum { CHUNK = 16 << 20 };
    struct stat st;
    ssize_t got = 1;

    if (fstat(fd, &st)) {
        return failed(f, errno);
    }
    if (own && !is_ours(f->path, st.st_uid)) {
        cmn_fail("it belongs to another user (id %u): put a copy of yours in its place if it is "
                 "to be trusted, or move it away",
                 (unsigned)st.st_uid);
        return unusable(f);
    }
    if (!S_ISREG(st.st_mode)) {
        return cmn_fail("is no regular file");
    }
    f->owned = aligned_alloc(CMN_ALIGN, (size_t)cmn_aligned((uint64_t)st.st_size + 1));
    if (!f->owned) {
        cmn_fail("out of memory for its %zu bytes", (size_t)st.st_size);
        return unusable(f);
    }
    f->bytes = f->owned;
    while (f->n < (size_t)st.st_size && got) {
        size_t rest = (size_t)st.st_size - f->n;
        got = read(fd, f->owned + f->n, rest < CHUNK ? rest : CHUNK);
        if (got < 0 && errno != EINTR) {
            return failed(f, errno);
        }
        f->n += got > 0 ? (size_t)got : 0;
        cmn_status_progress(); /* the disk may be slow */
    }
    return 0;
}

/* Reads and checks a file. With `own` it must belong to this user or root. NULL with a reason, and
 * with *is_unusable if the file may be intact. */
static struct cmn_checkpoint_file *read_file(const char *path, int own, int *is_unusable)
{
    struct cmn_checkpoint_file *f = cmn_calloc(1, sizeof *f);
    /* O_NONBLOCK: the file may be a pipe, and open() must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), bad;

    f->path = cmn_strdup(path);
    bad = (fd < 0 ? failed(f, errno) : read_all(f, fd, own)) || parse(f);
    if (fd >= 0) {
        close(fd);
    }
    *is_unusable = f->unusable;
    if (bad) {
        cmn_fail_in("%s", path);
        cmn_checkpoint_free(f);
        return NULL;
    }
    return f;
}

struct cmn_checkpoint_file *cmn_checkpoint_read(const char *path)
{
    int is_unusable;

    return read_file(path, 0, &is_unusable);
}

/* ---- a folder ---- */

/* Returns the iterations of this name in the folder, the latest first. *n is 0 if the folder does
 * not exist, and -1 with a reason if it cannot be read. The caller frees the list. */
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

static struct cmn_checkpoint_file *read_iteration(const char *folder, const char *name,
                                                  long iteration, int *is_unusable)
{
    char path[PATH_MAX];
    struct cmn_checkpoint_file *f;

    if (cmn_directory_path(folder, name, iteration, path)) {
        *is_unusable = 1;
        cmn_fail("%s: %s", folder, strerror(ENAMETOOLONG));
        return NULL;
    }
    f = read_file(path, 1, is_unusable);
    if (f && f->iteration != iteration) {
        cmn_fail("%s: it is of iteration %ld, not of that of its name", path, f->iteration);
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
    int n, is_unusable = 0;
    long *all = list(folder, name, &n);

    for (int i = 0; i < n && !f && !is_unusable; i++) {
        f = read_iteration(folder, name, all[i], &is_unusable);
        if (!f && !is_unusable) {
            damaged(cmn_reason());
        }
    }
    if (n > 0 && !f && !is_unusable) {
        cmn_fail("%s: none of the %d checkpoints of %s is intact", folder, n, name);
    }
    free(all);
    *reason_given = n != 0 && !f;
    return f;
}

/* ---- the content of a checkpoint ---- */

int cmn_checkpoint_follows_weights(FILE *weights)
{
    unsigned char bytes[CMN_MARK];
    struct cmn_mark mark;
    long at = ftell(weights);
    int follows = at >= 0 && fread(bytes, sizeof bytes, 1, weights) == 1 &&
                  !cmn_mark_read(&mark, bytes) && mark.weights == (uint64_t)at;

    if (at >= 0) {
        fseek(weights, at, SEEK_SET);
    }
    return follows;
}

const struct cmn_checkpoint_tensor *cmn_checkpoint_tensor(const struct cmn_checkpoint_file *f,
                                                          const char *name, int rank)
{
    struct cmn_checkpoint_tensor wanted = {.rank = rank};

    if (strlen(name) >= sizeof wanted.name) {
        return NULL;
    }
    memcpy(wanted.name, name, strlen(name) + 1);
    return bsearch(&wanted, f->tensor, f->tensors, sizeof *f->tensor, order);
}

void cmn_checkpoint_free(struct cmn_checkpoint_file *f)
{
    if (!f) {
        return;
    }
    cJSON_Delete(f->header);
    free(f->tensor);
    free(f->owned);
    free(f->path);
    free(f);
}
