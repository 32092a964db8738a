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
#include "base/status.h"
#include "checkpoint/directory.h"

struct cmn_checkpoint_file {
    char *path;
    unsigned char *owned; /* the bytes, if they are to be freed with this struct */
    const unsigned char *bytes;
    size_t n;
    struct cmn_mark mark;
    cJSON *header;
    long long iteration, written;
    struct cmn_checkpoint_tensor *tensor; /* sorted by name and rank */
    size_t tensors;
};

/* Instead of a damaged checkpoint an older one may be used. An unusable one needs the user's
 * decision first. */
enum outcome { INTACT, DAMAGED, UNUSABLE };

static enum outcome out_of_memory(size_t bytes)
{
    cmn_fail("out of memory for its %zu bytes", bytes);
    return UNUSABLE;
}

/* ---- the mark ---- */

/* Returns whether a mark stands at the byte at which, by its own account, the weights end; weights
 * that look like a mark do not pass. In other versions of the format some bytes may lie between the
 * two. */
static int is_in_its_place(const struct cmn_mark *m, uint64_t at)
{
    return m->version == CMN_CHECKPOINT_VERSION ? m->weights == at : m->weights <= at;
}

static enum outcome find_mark(struct cmn_checkpoint_file *f)
{
    const unsigned char *end = f->bytes + f->n, *at = f->bytes;

    while ((at = cmn_mark_find(at, (size_t)(end - at)))) {
        if (end - at >= CMN_MARK && !cmn_mark_read(&f->mark, at) &&
            is_in_its_place(&f->mark, (uint64_t)(at - f->bytes))) {
            return INTACT;
        }
        at++;
    }
    if (f->n) {
        cmn_fail("truncated, damaged, or no checkpoint: no mark behind weights (it has %zu bytes)",
                 f->n);
    } else {
        cmn_fail("it is empty");
    }
    return DAMAGED;
}

static enum outcome check_lengths(const struct cmn_checkpoint_file *f)
{
    const struct cmn_mark *m = &f->mark;
    uint64_t begin = m->weights + CMN_MARK; /* within the file, as find_mark() has checked */

    if (m->version != CMN_CHECKPOINT_VERSION) {
        cmn_fail("its format is version %u, and this program reads version %d: only its weights "
                 "can be used, as a weights file",
                 m->version, CMN_CHECKPOINT_VERSION);
        return UNUSABLE;
    }
    if (m->file != f->n) {
        cmn_fail(f->n < m->file ? "truncated: %zu of %llu bytes"
                                : "it has %zu bytes, and should have %llu",
                 f->n, (unsigned long long)m->file);
        return DAMAGED;
    }
    if (m->header > f->n - begin || (begin + m->header) % CMN_ALIGN) {
        cmn_fail("its header has an impossible length");
        return DAMAGED;
    }
    return INTACT;
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

static const double most_exact = 9007199254740992.; /* 2^53: a double is exact up to here */

/* Returns whether the object holds the checksum of these bytes under that name. */
static int has_check(const cJSON *object, const char *name, const void *bytes, size_t n)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16 &&
           cmn_checks(bytes, n, strtoull(text, NULL, 16));
}

static enum outcome damaged_header(const char *what)
{
    cmn_fail("its header: %s", what);
    return DAMAGED;
}

static enum outcome read_header(struct cmn_checkpoint_file *f)
{
    const struct cmn_mark *m = &f->mark;
    const char *text = (const char *)f->bytes + m->weights + CMN_MARK, *end = NULL;
    const cJSON *training;

    if (!cmn_checks(text, m->header, m->header_check)) {
        return damaged_header("wrong checksum");
    }
    if (has_too_many_values(text, m->header)) {
        return damaged_header("too many values for its length");
    }
    f->header = cJSON_ParseWithLengthOpts(text, m->header, &end, 0);
    while (f->header && end < text + m->header && *end == ' ') {
        end++;
    }
    if (!f->header || end < text + m->header) {
        return damaged_header("no JSON");
    }
    f->iteration = whole(f->header, "iteration", most_exact);
    f->written = whole(f->header, "written", most_exact);
    training = cmn_checkpoint_training(f);
    if (f->iteration < 0 || f->written < 0 || !cJSON_IsObject(training)) {
        return damaged_header("no iteration, time or description of the training");
    }
    if (!has_check(f->header, "weights", f->bytes, m->weights)) {
        cmn_fail("weights: wrong checksum");
        return DAMAGED;
    }
    return INTACT;
}

/* ---- tensors ---- */

static enum outcome damaged_tensor(const struct cmn_checkpoint_tensor *t, const char *what)
{
    char rank[32] = "";

    if (t->rank != CMN_ALL_RANKS) {
        snprintf(rank, sizeof rank, " of rank %d", t->rank);
    }
    cmn_fail("tensor %s%s: %s", t->name, rank, what);
    return DAMAGED;
}

/* Reads a tensor whose bytes are a part of the weights, so that their checksum covers it. It must
 * be common to all ranks. */
static enum outcome find_in_weights(const struct cmn_checkpoint_file *f, const cJSON *item,
                                    struct cmn_checkpoint_tensor *t, size_t bytes)
{
    long long at = whole(item, "at", most_exact);

    if (at < 0 || at % (long long)sizeof(float) || t->rank != CMN_ALL_RANKS ||
        bytes > f->mark.weights || (size_t)at > f->mark.weights - bytes) {
        return damaged_tensor(t, "it is not within the weights");
    }
    t->data = f->bytes + at;
    t->bytes = bytes;
    t->in_weights = 1;
    return INTACT;
}

/* Reads one tensor. *at is the byte at which it begins, and becomes that of the next one. */
static enum outcome read_tensor(const struct cmn_checkpoint_file *f, const cJSON *item,
                                struct cmn_checkpoint_tensor *t, size_t *at)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "name"));
    long long rank = whole(item, "rank", INT_MAX), bytes = whole(item, "bytes", most_exact);
    size_t left = f->n - *at; /* both are multiples of CMN_ALIGN */

    if (!name || !cmn_tensor_name_is_valid(name)) {
        return damaged_header("a tensor without a proper name");
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
               ? INTACT
               : damaged_tensor(t, "wrong checksum");
}

static int order(const void *a, const void *b)
{
    const struct cmn_checkpoint_tensor *x = a, *y = b;
    int names = strcmp(x->name, y->name);

    return names ? names : (x->rank > y->rank) - (x->rank < y->rank);
}

static enum outcome read_tensors(struct cmn_checkpoint_file *f)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(f->header, "tensors"), *item;
    size_t at = f->mark.weights + CMN_MARK + f->mark.header;
    enum outcome outcome = INTACT;

    if (!cJSON_IsArray(list) || f->n % CMN_ALIGN) {
        return damaged_header("no tensors, or a length that no file of tensors has");
    }
    f->tensor = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *f->tensor);
    if (!f->tensor) {
        return out_of_memory(f->n);
    }
    cJSON_ArrayForEach(item, list)
    {
        outcome = read_tensor(f, item, &f->tensor[f->tensors], &at);
        if (outcome != INTACT) {
            return outcome;
        }
        f->tensors++;
    }
    if (at != f->n) {
        cmn_fail("%zu bytes too many behind its last tensor", f->n - at);
        return DAMAGED;
    }
    qsort(f->tensor, f->tensors, sizeof *f->tensor, order);
    for (size_t i = 1; i < f->tensors; i++) {
        if (!order(&f->tensor[i - 1], &f->tensor[i])) {
            return damaged_tensor(&f->tensor[i], "it is there twice");
        }
    }
    return INTACT;
}

static enum outcome parse(struct cmn_checkpoint_file *f)
{
    enum outcome outcome = find_mark(f);

    if (outcome == INTACT) {
        outcome = check_lengths(f);
    }
    if (outcome == INTACT) {
        outcome = read_header(f);
    }
    return outcome == INTACT ? read_tensors(f) : outcome;
}

struct cmn_checkpoint_file *cmn_checkpoint_parse(const void *bytes, size_t n)
{
    struct cmn_checkpoint_file *f = calloc(1, sizeof *f);

    if (!f) {
        out_of_memory(n);
        return NULL;
    }
    f->bytes = bytes;
    f->n = n;
    if (parse(f) != INTACT) {
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

static enum outcome failed(int reason)
{
    cmn_fail("%s", strerror(reason));
    return lacks(reason) ? UNUSABLE : DAMAGED;
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

/* Refuses a file of another user, because the owner of a checkpoint decides what the training
 * becomes. */
static enum outcome check_owner(const char *path, int fd)
{
    struct stat st;

    if (fstat(fd, &st)) {
        return failed(errno);
    }
    if (!is_ours(path, st.st_uid)) {
        cmn_fail("it belongs to another user (id %u): put a copy of yours in its place if it is "
                 "to be trusted, or move it away",
                 (unsigned)st.st_uid);
        return UNUSABLE;
    }
    return INTACT;
}

static enum outcome read_all(struct cmn_checkpoint_file *f, int fd)
{
    enum { CHUNK = 16 << 20 };
    struct stat st;
    ssize_t got = 1;

    if (fstat(fd, &st)) {
        return failed(errno);
    }
    if (!S_ISREG(st.st_mode)) {
        cmn_fail("is no regular file");
        return DAMAGED;
    }
    f->owned = aligned_alloc(CMN_ALIGN, (size_t)cmn_aligned((uint64_t)st.st_size + 1));
    if (!f->owned) {
        return out_of_memory((size_t)st.st_size);
    }
    f->bytes = f->owned;
    while (f->n < (size_t)st.st_size && got) {
        size_t rest = (size_t)st.st_size - f->n;
        got = read(fd, f->owned + f->n, rest < CHUNK ? rest : CHUNK);
        if (got < 0 && errno != EINTR) {
            return failed(errno);
        }
        f->n += got > 0 ? (size_t)got : 0;
        cmn_status_progress(); /* the disk may be slow */
    }
    return INTACT;
}

/* Reads and checks a file. With `own` it must belong to this user or root. NULL with a reason and
 * *outcome. */
static struct cmn_checkpoint_file *read_file(const char *path, int own, enum outcome *outcome)
{
    struct cmn_checkpoint_file *f = calloc(1, sizeof *f);
    int fd;

    if (!f || !(f->path = strdup(path))) {
        *outcome = out_of_memory(0);
    } else {
        /* O_NONBLOCK: the file may be a pipe, and open() must not wait for its writer. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        *outcome = fd < 0 ? failed(errno) : own ? check_owner(path, fd) : INTACT;
        if (*outcome == INTACT) {
            *outcome = read_all(f, fd);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (*outcome == INTACT) {
        *outcome = parse(f);
    }
    if (*outcome != INTACT) {
        cmn_fail_in("%s", path);
        cmn_checkpoint_free(f);
        return NULL;
    }
    return f;
}

struct cmn_checkpoint_file *cmn_checkpoint_read(const char *path)
{
    enum outcome outcome;

    return read_file(path, 0, &outcome);
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
                                                  long iteration, enum outcome *outcome)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s-%ld.checkpoint", folder, name, iteration);
    struct cmn_checkpoint_file *f;

    if (n < 0 || (size_t)n >= sizeof path) {
        *outcome = UNUSABLE;
        cmn_fail("%s: %s", folder, strerror(ENAMETOOLONG));
        return NULL;
    }
    f = read_file(path, 1, outcome);
    if (f && f->iteration != iteration) {
        *outcome = DAMAGED;
        cmn_fail("%s: it is of iteration %lld, not of that of its name", path, f->iteration);
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
    enum outcome outcome = DAMAGED;
    int n;
    long *all = list(folder, name, &n);

    for (int i = 0; i < n && outcome == DAMAGED; i++) {
        f = read_iteration(folder, name, all[i], &outcome);
        if (outcome == DAMAGED) {
            damaged(cmn_reason());
        }
    }
    if (n > 0 && outcome == DAMAGED) {
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

const char *cmn_checkpoint_path(const struct cmn_checkpoint_file *f)
{
    return f->path;
}

long cmn_checkpoint_iteration(const struct cmn_checkpoint_file *f)
{
    return (long)f->iteration;
}

long long cmn_checkpoint_written(const struct cmn_checkpoint_file *f)
{
    return f->written;
}

size_t cmn_checkpoint_bytes(const struct cmn_checkpoint_file *f)
{
    return f->n;
}

size_t cmn_checkpoint_weight_bytes(const struct cmn_checkpoint_file *f)
{
    return f->mark.weights;
}

const cJSON *cmn_checkpoint_training(const struct cmn_checkpoint_file *f)
{
    return cJSON_GetObjectItemCaseSensitive(f->header, "training");
}

const struct cmn_checkpoint_tensor *cmn_checkpoint_tensor_at(const struct cmn_checkpoint_file *f,
                                                             size_t i)
{
    return i < f->tensors ? &f->tensor[i] : NULL;
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
