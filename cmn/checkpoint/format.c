#include "checkpoint/format.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char head_mark[17] = "cmn checkpoint\n\n";
static const char tail_mark[17] = "cmn end of file\n";

uint64_t cmn_checksum(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

int cmn_checks(const void *bytes, size_t n, uint64_t check)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    /* A fuzzer cannot guess checksums: for it, all are right. */
    (void)bytes;
    (void)n;
    (void)check;
    return 1;
#else
    return cmn_checksum(bytes, n) == check;
#endif
}

static unsigned char *put64(unsigned char *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static unsigned char *put32(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint64_t get64(const unsigned char **from)
{
    uint64_t value;

    memcpy(&value, *from, sizeof value);
    *from += sizeof value;
    return le64toh(value);
}

static uint32_t get32(const unsigned char **from)
{
    uint32_t value;

    memcpy(&value, *from, sizeof value);
    *from += sizeof value;
    return le32toh(value);
}

void cmn_entry_write(const struct cmn_entry *e, unsigned char *to)
{
    memset(to, 0, CMN_SECTION_NAME);
    memcpy(to, e->name, strnlen(e->name, CMN_SECTION_NAME - 1));
    to = put32(to + CMN_SECTION_NAME, (uint32_t)e->rank);
    to = put32(to, e->same);
    to = put64(to, e->bytes);
    to = put64(to, e->lead);
    to = put64(to, e->offset);
    to = put64(to, e->stored);
    put64(to, e->check);
}

void cmn_entry_read(struct cmn_entry *e, const unsigned char *from)
{
    memcpy(e->name, from, CMN_SECTION_NAME);
    from += CMN_SECTION_NAME;
    e->rank = (int32_t)get32(&from);
    e->same = get32(&from);
    e->bytes = get64(&from);
    e->lead = get64(&from);
    e->offset = get64(&from);
    e->stored = get64(&from);
    e->check = get64(&from);
}

void cmn_head_write(const struct cmn_head *h, unsigned char *to)
{
    unsigned char *begin = to;

    memcpy(to, head_mark, 16);
    to = put32(to + 16, h->version);
    to = put32(to, 0);
    to = put64(to, h->weights);
    to = put64(to, h->bytes);
    to = put64(to, (uint64_t)h->iteration);
    to = put64(to, (uint64_t)h->when);
    put64(to, cmn_checksum(begin, (size_t)(to - begin)));
}

int cmn_head_read(struct cmn_head *h, const unsigned char *from)
{
    const unsigned char *begin = from;
    size_t n;

    if (memcmp(from, head_mark, 16)) {
        return -1;
    }
    from += 16;
    h->version = get32(&from);
    from += 4;
    h->weights = get64(&from);
    h->bytes = get64(&from);
    h->iteration = (int64_t)get64(&from);
    h->when = (int64_t)get64(&from);
    n = (size_t)(from - begin);
    return cmn_checks(begin, n, get64(&from)) ? 0 : -1;
}

void cmn_trailer_write(const struct cmn_trailer *t, unsigned char *to)
{
    to = put64(to, t->index);
    to = put64(to, t->entries);
    to = put64(to, t->index_check);
    to = put32(to, t->version);
    to = put32(to, 0);
    to = put64(to, t->bytes);
    to = put64(to, 0);
    memcpy(to, tail_mark, 16);
}

int cmn_trailer_read(struct cmn_trailer *t, const unsigned char *from)
{
    t->index = get64(&from);
    t->entries = get64(&from);
    t->index_check = get64(&from);
    t->version = get32(&from);
    from += 4;
    t->bytes = get64(&from);
    t->check = get64(&from);
    return memcmp(from, tail_mark, 16) ? -1 : 0;
}

void cmn_trailer_seal(unsigned char *file, size_t bytes)
{
    size_t covered = bytes - CMN_UNCOVERED;

    put64(file + covered, cmn_checksum(file, covered));
}

long cmn_checkpoint_number(const char *file, const char *name)
{
    size_t n = strlen(name), digits;

    if (strncmp(file, name, n) || file[n] != '-') {
        return -1;
    }
    file += n + 1;
    digits = strspn(file, "0123456789");
    if (!digits || digits > 18 || (*file == '0' && digits > 1) ||
        strcmp(file + digits, ".checkpoint")) {
        return -1;
    }
    return strtol(file, NULL, 10);
}
