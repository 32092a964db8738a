/* What is to become a checkpoint, in memory as it will lie in the file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/format.h"
#include "base/log.h"

struct cmn_snapshot {
    unsigned char *bytes;
    size_t n, room;
    struct cmn_entry *entry; /* the first one is the weights */
    size_t entries, entry_room;
    FILE *weights; /* while they are written */
    int begun;     /* sections have begun */
    int filling;   /* the bytes of the last section are not final yet */
    int broken;    /* memory was short: it is no use any more */
};

struct cmn_snapshot *cmn_snapshot_new(void)
{
    struct cmn_snapshot *s = calloc(1, sizeof *s);

    if (!s) {
        cmn_fail("out of memory");
    }
    return s;
}

void cmn_snapshot_clear(struct cmn_snapshot *s)
{
    if (s->weights) {
        fclose(s->weights);
    }
    s->weights = NULL;
    s->n = s->entries = 0;
    s->begun = s->filling = s->broken = 0;
}

void cmn_snapshot_free(struct cmn_snapshot *s)
{
    if (!s) {
        return;
    }
    cmn_snapshot_clear(s);
    free(s->bytes);
    free(s->entry);
    free(s);
}

static int short_of(struct cmn_snapshot *s, size_t bytes)
{
    s->broken = 1;
    return cmn_fail("out of memory for a checkpoint of %zu bytes or more", bytes);
}

/* Room for `more` bytes at the end. */
static int reserve(struct cmn_snapshot *s, size_t more)
{
    size_t room = s->room ? s->room : 65536;
    unsigned char *bytes;

    if (more > SIZE_MAX / 4 - s->n) {
        return short_of(s, SIZE_MAX / 4);
    }
    if (s->n + more <= s->room) {
        return 0;
    }
    while (room < s->n + more) {
        room *= 2;
    }
    bytes = realloc(s->bytes, room);
    if (!bytes) {
        room = s->n + more;
        bytes = realloc(s->bytes, room);
    }
    if (!bytes) {
        return short_of(s, room);
    }
    s->bytes = bytes;
    s->room = room;
    return 0;
}

static int pad(struct cmn_snapshot *s)
{
    size_t gap = (size_t)(cmn_aligned(s->n) - s->n);

    if (!gap) {
        return 0;
    }
    if (reserve(s, gap)) {
        return -1;
    }
    memset(s->bytes + s->n, 0, gap);
    s->n += gap;
    return 0;
}

static struct cmn_entry *new_entry(struct cmn_snapshot *s, const char *name, int rank)
{
    struct cmn_entry *e;

    if (s->entries == s->entry_room) {
        size_t room = s->entry_room ? 2 * s->entry_room : 64;
        e = realloc(s->entry, room * sizeof *e);
        if (!e) {
            short_of(s, s->n);
            return NULL;
        }
        s->entry = e;
        s->entry_room = room;
    }
    e = &s->entry[s->entries++];
    memset(e, 0, sizeof *e);
    memcpy(e->name, name, strlen(name));
    e->rank = rank;
    e->offset = s->n;
    return e;
}

static ssize_t take_weights(void *to, const char *bytes, size_t n)
{
    struct cmn_snapshot *s = to;

    if (reserve(s, n)) {
        errno = ENOMEM;
        return 0;
    }
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return (ssize_t)n;
}

FILE *cmn_snapshot_weights(struct cmn_snapshot *s)
{
    cookie_io_functions_t calls = {.write = take_weights};

    if (s->begun) {
        cmn_fail("the weights of a checkpoint come before its sections");
        return NULL;
    }
    if (!s->weights) {
        s->weights = fopencookie(s, "w", calls);
    }
    if (!s->weights) {
        short_of(s, s->n);
    }
    return s->weights;
}

/* The weights are complete: their entry, and room for the head. */
static int begin_sections(struct cmn_snapshot *s)
{
    FILE *weights = s->weights;
    struct cmn_entry *e;

    s->weights = NULL;
    if (weights && fclose(weights)) {
        return short_of(s, s->n);
    }
    s->begun = 1;
    e = new_entry(s, CMN_WEIGHTS, CMN_NO_RANK);
    if (!e) {
        return -1;
    }
    e->offset = 0;
    e->bytes = e->stored = s->n;
    if (pad(s) || reserve(s, CMN_HEAD)) {
        return -1;
    }
    memset(s->bytes + s->n, 0, CMN_HEAD);
    s->n += CMN_HEAD;
    return 0;
}

static size_t zeros_before(const unsigned char *p, size_t n)
{
    size_t i = 0;
    uint64_t word;

    for (; n - i >= sizeof word; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        if (word) {
            break;
        }
    }
    while (i < n && !p[i]) {
        i++;
    }
    return i;
}

static size_t zeros_behind(const unsigned char *p, size_t n)
{
    size_t left = n;
    uint64_t word;

    for (; left >= sizeof word; left -= sizeof word) {
        memcpy(&word, p + left - sizeof word, sizeof word);
        if (word) {
            break;
        }
    }
    while (left && !p[left - 1]) {
        left--;
    }
    return n - left;
}

/* The last section is complete: leaves out the zeros at its ends, but for those that must be stored. */
static void end_section(struct cmn_snapshot *s)
{
    struct cmn_entry *e = &s->entry[s->entries - 1];
    unsigned char *data = s->bytes + e->offset;
    size_t bytes = (size_t)e->bytes, least = (size_t)cmn_least_stored(e->bytes);
    size_t lead = zeros_before(data, bytes);
    size_t end = bytes - zeros_behind(data + lead, bytes - lead);
    size_t missing = end - lead < least ? least - (end - lead) : 0;

    s->filling = 0;
    if (missing > lead) {
        end += missing - lead;
        lead = 0;
    } else {
        lead -= missing;
    }
    memmove(data, data + lead, end - lead);
    e->lead = lead;
    e->stored = end - lead;
    s->n = (size_t)(e->offset + e->stored);
}

/* All that was begun is final; the next section begins at s->n. */
static int settle(struct cmn_snapshot *s)
{
    if (s->broken) {
        return short_of(s, s->n);
    }
    if (!s->begun && begin_sections(s)) {
        return -1;
    }
    if (s->filling) {
        end_section(s);
    }
    return pad(s);
}

static int check_name(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            n = 0;
        }
    }
    return n && n < CMN_SECTION_NAME && strcmp(name, CMN_WEIGHTS)
               ? 0
               : cmn_fail("\"%s\" is no name for a section of a checkpoint", name);
}

void *cmn_snapshot_room(struct cmn_snapshot *s, const char *name, int rank, size_t bytes)
{
    struct cmn_entry *e;

    if (check_name(name) || settle(s) || reserve(s, bytes) || !(e = new_entry(s, name, rank))) {
        return NULL;
    }
    e->bytes = bytes;
    s->n += bytes;
    s->filling = 1;
    return s->bytes + e->offset;
}

int cmn_snapshot_add(struct cmn_snapshot *s, const char *name, int rank, const void *data,
                     size_t bytes)
{
    void *room = cmn_snapshot_room(s, name, rank, bytes);

    if (!room) {
        return -1;
    }
    if (bytes) {
        memcpy(room, data, bytes);
    }
    return 0;
}

int cmn_snapshot_same(struct cmn_snapshot *s, const char *name, int rank, int as_rank)
{
    struct cmn_entry *e;

    if (check_name(name) || settle(s)) {
        return -1;
    }
    for (size_t i = 1; i < s->entries; i++) {
        if (s->entry[i].rank == as_rank && !strcmp(s->entry[i].name, name)) {
            uint32_t same = s->entry[i].same ? s->entry[i].same : (uint32_t)i + 1;
            if (!(e = new_entry(s, name, rank))) {
                return -1;
            }
            *e = s->entry[same - 1];
            e->rank = rank;
            e->same = same;
            return 0;
        }
    }
    return cmn_fail("a checkpoint without section %s of rank %d", name, as_rank);
}

/* The checksums are found here, not while the training waits. */
static void check_sections(struct cmn_snapshot *s)
{
    for (size_t i = 0; i < s->entries; i++) {
        struct cmn_entry *e = &s->entry[i];
        e->check = e->same ? s->entry[e->same - 1].check
                           : cmn_checksum(s->bytes + e->offset, (size_t)e->stored);
    }
}

const void *cmn_snapshot_seal(struct cmn_snapshot *s, long iteration, size_t *bytes)
{
    struct cmn_trailer trailer = {.version = CMN_FORMAT_VERSION};
    struct cmn_head head = {.version = CMN_FORMAT_VERSION, .iteration = iteration};
    size_t index;

    if (settle(s)) {
        return NULL;
    }
    trailer.index = s->n;
    trailer.entries = s->entries;
    index = s->entries * CMN_ENTRY;
    if (reserve(s, (size_t)cmn_aligned(index) + CMN_TRAILER)) {
        return NULL;
    }
    check_sections(s);
    for (size_t i = 0; i < s->entries; i++, s->n += CMN_ENTRY) {
        cmn_entry_write(&s->entry[i], s->bytes + s->n);
    }
    trailer.index_check = cmn_checksum(s->bytes + trailer.index, index);
    if (pad(s)) {
        return NULL;
    }
    head.weights = s->entry[0].bytes;
    head.bytes = trailer.bytes = s->n + CMN_TRAILER;
    head.when = time(NULL);
    cmn_head_write(&head, s->bytes + cmn_aligned(head.weights));
    cmn_trailer_write(&trailer, s->bytes + s->n);
    s->n += CMN_TRAILER;
    cmn_trailer_seal(s->bytes, s->n);
    *bytes = s->n;
    return s->bytes;
}
