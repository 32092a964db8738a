/* The bytes of a checkpoint: whatever they are, they are checked before they are used. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format.h"
#include "base/log.h"

static const char *rank_text(int rank, char *text, size_t bytes)
{
    if (rank == CMN_NO_RANK) {
        text[0] = '\0';
    } else {
        snprintf(text, bytes, " of rank %d", rank);
    }
    return text;
}

static int fail_entry(const struct cmn_entry *e, const char *what)
{
    char text[32];

    return cmn_fail("section %s%s: %s", e->name, rank_text(e->rank, text, sizeof text), what);
}

/* What is left of a file that was cut off: its head tells how long it had been. */
static int cut_off(const unsigned char *bytes, size_t n)
{
    struct cmn_head head;

    for (size_t i = 0; i + CMN_HEAD <= n; i += CMN_ALIGN) {
        if (!cmn_head_read(&head, bytes + i)) {
            return n < head.bytes
                       ? cmn_fail("truncated: %zu of %llu bytes", n, (unsigned long long)head.bytes)
                       : cmn_fail("its end is damaged");
        }
    }
    return n ? cmn_fail("truncated, or no checkpoint: its end is missing (it has %zu bytes)", n)
             : cmn_fail("it is empty");
}

static int good_name(const char *name)
{
    size_t n = strnlen(name, CMN_SECTION_NAME);

    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            return 0;
        }
    }
    return n > 0 && n < CMN_SECTION_NAME;
}

/* Whether entry i says what a writer says. *end is where the section before it ends, and becomes its own end. */
static int check_entry(const struct cmn_checkpoint_file *f, size_t i, uint64_t *end, uint64_t limit)
{
    const struct cmn_entry *e = &f->entry[i], *other;

    if (!good_name(e->name) || e->rank < CMN_NO_RANK) {
        return cmn_fail("section %zu has no proper name", i);
    }
    if (i == 0) {
        *end = cmn_aligned(e->stored) + CMN_HEAD;
        return strcmp(e->name, CMN_WEIGHTS) || e->rank != CMN_NO_RANK || e->same || e->offset ||
                       e->lead || e->bytes != e->stored || e->stored != f->head.weights
                   ? cmn_fail("its index does not begin with the weights")
                   : 0;
    }
    if (e->same) {
        if (e->same < 2 || e->same > i) {
            return fail_entry(e, "it is said to be that of no section before it");
        }
        other = &f->entry[e->same - 1];
        return other->same || strcmp(e->name, other->name) || e->bytes != other->bytes ||
                       e->lead != other->lead || e->offset != other->offset ||
                       e->stored != other->stored || e->check != other->check
                   ? fail_entry(e, "it differs from the section that it is said to be")
                   : 0;
    }
    if (e->offset != cmn_aligned(*end) || e->offset > limit || e->stored > limit - e->offset) {
        return fail_entry(e, "it lies outside of its place");
    }
    if (e->lead > e->bytes || e->stored > e->bytes - e->lead ||
        e->stored < cmn_least_stored(e->bytes)) {
        return fail_entry(e, "its lengths contradict each other");
    }
    *end = e->offset + e->stored;
    return 0;
}

int cmn_entry_order(const void *a, const void *b)
{
    const struct cmn_entry *x = *(const struct cmn_entry *const *)a;
    const struct cmn_entry *y = *(const struct cmn_entry *const *)b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int sort_entries(struct cmn_checkpoint_file *f)
{
    for (size_t i = 0; i < f->entries; i++) {
        f->sorted[i] = &f->entry[i];
    }
    qsort(f->sorted, f->entries, sizeof *f->sorted, cmn_entry_order);
    for (size_t i = 1; i < f->entries; i++) {
        if (!cmn_entry_order(&f->sorted[i - 1], &f->sorted[i])) {
            return fail_entry(f->sorted[i], "it is there twice");
        }
    }
    return 0;
}

static enum cmn_outcome check_index(struct cmn_checkpoint_file *f, const struct cmn_trailer *t)
{
    uint64_t room = f->n - CMN_TRAILER;

    if (t->index > room || t->entries < 1 || t->entries > (room - t->index) / CMN_ENTRY ||
        cmn_aligned(t->entries * CMN_ENTRY) != room - t->index) {
        cmn_fail("its index is not where it is said to be");
        return CMN_DAMAGED;
    }
    if (!cmn_checks(f->bytes + t->index, (size_t)t->entries * CMN_ENTRY, t->index_check)) {
        cmn_fail("its index: wrong checksum");
        return CMN_DAMAGED;
    }
    f->entries = (size_t)t->entries;
    f->entry = calloc(f->entries, sizeof *f->entry);
    f->sorted = calloc(f->entries, sizeof *f->sorted);
    f->restored = calloc(f->entries, sizeof *f->restored);
    if (!f->entry || !f->sorted || !f->restored) {
        cmn_fail("out of memory");
        return CMN_UNUSABLE;
    }
    for (size_t i = 0; i < f->entries; i++) {
        cmn_entry_read(&f->entry[i], f->bytes + t->index + i * CMN_ENTRY);
    }
    return CMN_INTACT;
}

static enum cmn_outcome check_sections(struct cmn_checkpoint_file *f, uint64_t limit)
{
    uint64_t end = 0;

    for (size_t i = 0; i < f->entries; i++) {
        const struct cmn_entry *e = &f->entry[i];
        if (i == 0) {
            if (limit < CMN_HEAD || e->stored > limit - CMN_HEAD ||
                cmn_aligned(e->stored) > limit - CMN_HEAD ||
                cmn_head_read(&f->head, f->bytes + cmn_aligned(e->stored))) {
                cmn_fail("what stands behind the weights is damaged");
                return CMN_DAMAGED;
            }
        }
        if (check_entry(f, i, &end, limit)) {
            return CMN_DAMAGED;
        }
        if (!cmn_checks(f->bytes + e->offset, (size_t)e->stored, e->check)) {
            fail_entry(e, "wrong checksum");
            return CMN_DAMAGED;
        }
    }
    if (cmn_aligned(end) != limit) {
        cmn_fail("there is something between its sections and its index");
        return CMN_DAMAGED;
    }
    return sort_entries(f) ? CMN_DAMAGED : CMN_INTACT;
}

/* Of a file whose checksum is right, and of one where something is to be named that is wrong. */
static enum cmn_outcome check_inside(struct cmn_checkpoint_file *f, const struct cmn_trailer *t)
{
    enum cmn_outcome outcome = check_index(f, t);

    if (outcome == CMN_INTACT) {
        outcome = check_sections(f, t->index);
    }
    if (outcome == CMN_INTACT && (f->head.bytes != f->n || f->head.iteration < 0)) {
        cmn_fail("what stands behind the weights contradicts the file");
        return CMN_DAMAGED;
    }
    return outcome;
}

enum cmn_outcome cmn_checkpoint_check(struct cmn_checkpoint_file *f)
{
    struct cmn_trailer trailer;
    enum cmn_outcome outcome;
    int intact;

    if (f->n < CMN_HEAD + CMN_ENTRY + CMN_TRAILER ||
        cmn_trailer_read(&trailer, f->bytes + f->n - CMN_TRAILER)) {
        cut_off(f->bytes, f->n);
        return CMN_DAMAGED;
    }
    if (trailer.bytes != f->n) {
        cmn_fail("it has %zu bytes, and should have %llu", f->n, (unsigned long long)trailer.bytes);
        return CMN_DAMAGED;
    }
    intact = cmn_checks(f->bytes, f->n - CMN_UNCOVERED, trailer.check);
    if (intact && trailer.version != CMN_FORMAT_VERSION) {
        cmn_fail("written by a later version (%u, this program knows %d)", trailer.version,
                 CMN_FORMAT_VERSION);
        return CMN_UNUSABLE;
    }
    outcome = check_inside(f, &trailer);
    if (outcome == CMN_INTACT && !intact) {
        cmn_fail("wrong checksum outside of its sections");
        return CMN_DAMAGED;
    }
    return outcome;
}
