#include "checkpoint/format.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"

static const char magic[] = "cmn checkpoint\n\n"; /* the mark holds it without the NUL */

uint64_t cmn_checksum(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

int cmn_checks(const void *bytes, size_t n, uint64_t check)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    (void)bytes;
    (void)n;
    (void)check;
    return 1;
#else
    return cmn_checksum(bytes, n) == check;
#endif
}

/* ---- the mark ---- */

/* The mark as the file holds it; each number is little-endian. */
struct mark_bytes {
    char magic[16];
    uint32_t version, zero;
    uint64_t weights, file, header, header_check;
    uint64_t check; /* checksum of the fields before it */
};
_Static_assert(sizeof(struct mark_bytes) == CMN_MARK, "the mark has no padding");

void cmn_mark_write(const struct cmn_mark *mark, unsigned char to[CMN_MARK])
{
    struct mark_bytes m = {.version = htole32(mark->version),
                           .weights = htole64(mark->weights),
                           .file = htole64(mark->file),
                           .header = htole64(mark->header),
                           .header_check = htole64(mark->header_check)};

    memcpy(m.magic, magic, sizeof m.magic);
    m.check = htole64(cmn_checksum(&m, offsetof(struct mark_bytes, check)));
    memcpy(to, &m, sizeof m);
}

int cmn_mark_read(struct cmn_mark *mark, const unsigned char from[CMN_MARK])
{
    struct mark_bytes m;

    memcpy(&m, from, sizeof m);
    if (memcmp(m.magic, magic, sizeof m.magic) ||
        !cmn_checks(&m, offsetof(struct mark_bytes, check), le64toh(m.check))) {
        return -1;
    }
    *mark = (struct cmn_mark){.version = le32toh(m.version),
                              .weights = le64toh(m.weights),
                              .file = le64toh(m.file),
                              .header = le64toh(m.header),
                              .header_check = le64toh(m.header_check)};
    return 0;
}

const unsigned char *cmn_mark_find(const unsigned char *bytes, size_t n)
{
    return memmem(bytes, n, magic, sizeof magic - 1);
}

int cmn_tensor_name_is_valid(const char *name)
{
    size_t n = strnlen(name, CMN_TENSOR_NAME);

    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            return 0;
        }
    }
    return n > 0 && n < CMN_TENSOR_NAME;
}

/* ---- a checkpoint in memory ---- */

struct tensor {
    char name[CMN_TENSOR_NAME];
    int rank;
    size_t bytes, at; /* at: byte of the snapshot's data, or of the weights */
    int in_weights;
};

struct cmn_snapshot {
    FILE *stream; /* writes to weights */
    char *weights;
    size_t weight_bytes, weight_room;
    cJSON *training;
    struct tensor *tensor;
    size_t tensors, room;
    size_t last;         /* index of the tensor found or added last */
    unsigned char *data; /* the memory of all tensors */
    size_t data_bytes;
    unsigned char *front; /* mark and header */
};

static int out_of_memory(void)
{
    return cmn_fail("out of memory for a checkpoint");
}

struct cmn_snapshot *cmn_snapshot_new(void)
{
    struct cmn_snapshot *s = calloc(1, sizeof *s);

    if (!s) {
        out_of_memory();
    }
    return s;
}

/* Appends what Darknet writes to the weights. open_memstream() would take up to three times the
 * memory while its buffer grows. Here the buffer doubles, but pages of realloc() that were never
 * written take no memory. */
static ssize_t take_weights(void *of, const char *bytes, size_t n)
{
    struct cmn_snapshot *s = of;

    if (n > s->weight_room - s->weight_bytes) {
        size_t room = 2 * (s->weight_bytes + n);
        char *longer = realloc(s->weights, room);
        if (!longer) {
            return 0;
        }
        s->weights = longer;
        s->weight_room = room;
    }
    memcpy(s->weights + s->weight_bytes, bytes, n);
    s->weight_bytes += n;
    return (ssize_t)n;
}

FILE *cmn_snapshot_weights(struct cmn_snapshot *s)
{
    if (!s->stream &&
        !(s->stream = fopencookie(s, "w", (cookie_io_functions_t){.write = take_weights}))) {
        out_of_memory();
    }
    return s->stream;
}

int cmn_snapshot_describe(struct cmn_snapshot *s, cJSON *training)
{
    s->training = training;
    return training ? 0 : out_of_memory();
}

/* Returns the tensor's index, or -1. Callers ask for tensors in the order in which these were
 * named, so the search begins after the tensor found last. */
static long find(struct cmn_snapshot *s, const char *name, int rank)
{
    for (size_t i = 0; i < s->tensors; i++) {
        size_t k = (s->last + 1 + i) % s->tensors;
        if (s->tensor[k].rank == rank && !strcmp(s->tensor[k].name, name)) {
            s->last = k;
            return (long)k;
        }
    }
    return -1;
}

/* Returns the common tensor of this name if there is one, or adds a tensor of this name and rank.
 * NULL with a reason. */
static struct tensor *tensor_of(struct cmn_snapshot *s, const char *name, int rank)
{
    long i = rank == CMN_ALL_RANKS ? find(s, name, rank) : -1;
    struct tensor *t;

    if (!cmn_tensor_name_is_valid(name)) {
        cmn_fail("\"%s\" is no name for a tensor of a checkpoint", name);
        return NULL;
    }
    if (i >= 0) {
        return &s->tensor[i];
    }
    if (s->tensors == s->room) {
        size_t room = 2 * s->room + 256;
        t = realloc(s->tensor, room * sizeof *t);
        if (!t) {
            out_of_memory();
            return NULL;
        }
        s->tensor = t;
        s->room = room;
    }
    s->last = s->tensors++;
    t = &s->tensor[s->last];
    *t = (struct tensor){.rank = rank};
    memcpy(t->name, name, strlen(name) + 1);
    return t;
}

int cmn_snapshot_tensor(struct cmn_snapshot *s, const char *name, int rank, size_t bytes)
{
    struct tensor *t = tensor_of(s, name, rank);

    if (!t) {
        return -1;
    }
    t->bytes = bytes > t->bytes ? bytes : t->bytes;
    return 0;
}

size_t cmn_snapshot_refer(struct cmn_snapshot *s, const char *name, const void *data, size_t bytes,
                          size_t from)
{
    struct tensor *t;

    if (!bytes || !s->stream || fflush(s->stream)) {
        return 0;
    }
    while (from + bytes <= s->weight_bytes && memcmp(s->weights + from, data, bytes) != 0) {
        from += sizeof(float);
    }
    if (from + bytes > s->weight_bytes || !(t = tensor_of(s, name, CMN_ALL_RANKS))) {
        return 0;
    }
    t->bytes = bytes;
    t->at = from;
    t->in_weights = 1;
    return from + bytes;
}

int cmn_snapshot_allocate(struct cmn_snapshot *s)
{
    size_t at = 0;

    for (size_t i = 0; i < s->tensors; i++) {
        if (s->tensor[i].in_weights) {
            continue;
        }
        s->tensor[i].at = at;
        if (s->tensor[i].bytes > SIZE_MAX / 4 - at) {
            return out_of_memory();
        }
        at += cmn_aligned(s->tensor[i].bytes);
    }
    s->data = aligned_alloc(CMN_ALIGN, at ? at : CMN_ALIGN);
    if (!s->data) {
        return cmn_fail("out of memory for a checkpoint of %zu MiB", at >> 20);
    }
    memset(s->data, 0, at);
    s->data_bytes = at;
    return 0;
}

void *cmn_snapshot_data(struct cmn_snapshot *s, const char *name, int rank)
{
    return s->data + s->tensor[find(s, name, rank)].at;
}

/* ---- the header ---- */

static int add_check(cJSON *object, const char *name, const void *bytes, size_t n)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)cmn_checksum(bytes, n));
    return cJSON_AddStringToObject(object, name, text) ? 0 : -1;
}

static int add_tensor(const struct cmn_snapshot *s, const struct tensor *t, cJSON *list)
{
    cJSON *o = cJSON_CreateObject();

    if (!o || !cJSON_AddItemToArray(list, o)) {
        cJSON_Delete(o);
        return -1;
    }
    if (!cJSON_AddStringToObject(o, "name", t->name) ||
        (t->rank != CMN_ALL_RANKS && !cJSON_AddNumberToObject(o, "rank", t->rank)) ||
        !cJSON_AddNumberToObject(o, "bytes", (double)t->bytes)) {
        return -1;
    }
    if (t->in_weights) {
        return cJSON_AddNumberToObject(o, "at", (double)t->at) ? 0 : -1;
    }
    return add_check(o, "xxh3", s->data + t->at, cmn_aligned(t->bytes));
}

static char *print_header(const struct cmn_snapshot *s, long iteration)
{
    cJSON *header = cJSON_CreateObject(), *list = NULL;
    char *text = NULL;
    int bad = !header || !cJSON_AddNumberToObject(header, "iteration", (double)iteration) ||
              !cJSON_AddNumberToObject(header, "written", (double)time(NULL)) ||
              add_check(header, "weights", s->weights, s->weight_bytes) ||
              !cJSON_AddItemReferenceToObject(header, "training", s->training) ||
              !(list = cJSON_AddArrayToObject(header, "tensors"));

    for (size_t i = 0; i < s->tensors && !bad; i++) {
        bad = add_tensor(s, &s->tensor[i], list);
    }
    text = bad ? NULL : cJSON_PrintUnformatted(header);
    cJSON_Delete(header);
    return text;
}

int cmn_snapshot_seal(struct cmn_snapshot *s, long iteration, struct iovec part[CMN_SNAPSHOT_PARTS])
{
    struct cmn_mark mark = {.version = CMN_CHECKPOINT_VERSION};
    FILE *stream = cmn_snapshot_weights(s);
    char *text;
    size_t n;

    int cut = !stream || ferror(stream); /* fclose() does not report an earlier error */

    /* The weights are complete only after fclose(). */
    s->stream = NULL;
    if (!stream || fclose(stream) || cut || (!s->data && cmn_snapshot_allocate(s)) ||
        !(text = print_header(s, iteration))) {
        return out_of_memory();
    }
    n = strlen(text);
    mark.weights = s->weight_bytes;
    mark.header = cmn_aligned(mark.weights + CMN_MARK + n) - mark.weights - CMN_MARK;
    mark.file = mark.weights + CMN_MARK + mark.header + s->data_bytes;
    s->front = malloc(CMN_MARK + mark.header);
    if (s->front) {
        memset(s->front + CMN_MARK, ' ', mark.header);
        memcpy(s->front + CMN_MARK, text, n);
        mark.header_check = cmn_checksum(s->front + CMN_MARK, mark.header);
        cmn_mark_write(&mark, s->front);
    }
    cJSON_free(text);
    part[0] = (struct iovec){s->weights, s->weight_bytes};
    part[1] = (struct iovec){s->front, CMN_MARK + mark.header};
    part[2] = (struct iovec){s->data, s->data_bytes};
    return s->front ? 0 : out_of_memory();
}

void cmn_snapshot_free(struct cmn_snapshot *s)
{
    if (!s) {
        return;
    }
    if (s->stream) {
        fclose(s->stream);
    }
    free(s->weights);
    cJSON_Delete(s->training);
    free(s->tensor);
    free(s->data);
    free(s->front);
    free(s);
}
