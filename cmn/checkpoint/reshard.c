#include "checkpoint/reshard.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct cmn_made {
    struct cmn_made *next;
    char name[CMN_SECTION_NAME];
    void *data;
    size_t bytes;
};

static const void *section_of(const struct cmn_reshard *s, const char *name, int rank,
                              size_t *bytes)
{
    return cmn_checkpoint_section(s->from, name, rank, bytes);
}

static int add_floats(const struct cmn_reshard *s, const char *name, double *sum, size_t n)
{
    for (int r = 0; r < s->by->ranks; r++) {
        size_t bytes = 0;
        const float *x = section_of(s, name, r, &bytes);
        if (!x || bytes != n * sizeof *x) {
            return cmn_fail("%s: section %s of rank %d is not as the others",
                            cmn_checkpoint_path(s->from), name, r);
        }
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)x[i];
        }
    }
    return 0;
}

static int make_sum(const struct cmn_reshard *s, struct cmn_made *m, int mean)
{
    size_t n;
    double *sum;
    float *out;

    if (!section_of(s, m->name, 0, &m->bytes)) {
        return 0;
    }
    n = m->bytes / sizeof *out;
    sum = calloc(n + 1, sizeof *sum);
    out = m->data = calloc(n + 1, sizeof *out);
    if (!sum || !out) {
        free(sum);
        return cmn_fail("out of memory: the sum of what %d ranks had", s->by->ranks);
    }
    if (add_floats(s, m->name, sum, n)) {
        free(sum);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(mean ? sum[i] / s->by->ranks : sum[i]);
    }
    free(sum);
    return 0;
}

static int make_rows(const struct cmn_reshard *s, struct cmn_made *m)
{
    size_t bytes, at = 0;
    const void *data;

    for (int r = 0; r < s->by->ranks; r++) {
        m->bytes += section_of(s, m->name, r, &bytes) ? bytes : 0;
    }
    m->data = calloc(1, m->bytes + 1);
    if (!m->data) {
        return cmn_fail("out of memory");
    }
    for (int r = 0; r < s->by->ranks; r++) {
        data = section_of(s, m->name, r, &bytes);
        if (data) {
            memcpy((char *)m->data + at, data, bytes);
            at += bytes;
        }
    }
    return 0;
}

static struct cmn_made *make(struct cmn_reshard *s, const struct cmn_checkpoint_item *want)
{
    struct cmn_made *m = s->made;

    while (m && strcmp(m->name, want->name)) {
        m = m->next;
    }
    if (m) {
        return m;
    }
    m = calloc(1, sizeof *m);
    if (!m) {
        cmn_fail("out of memory");
        return NULL;
    }
    memcpy(m->name, want->name, sizeof m->name);
    m->next = s->made;
    s->made = m;
    return (want->merge == CMN_MERGE_ROWS ? make_rows(s, m)
                                          : make_sum(s, m, want->merge == CMN_MERGE_MEAN))
               ? NULL
               : m;
}

/* Rows that the old ranks did not have stay away. */
static const void *cut_rows(const struct cmn_made *m, const struct cmn_checkpoint_item *want,
                            size_t *bytes)
{
    size_t first = want->first_row * want->row_bytes;

    *bytes = first >= m->bytes ? 0 : m->bytes - first;
    *bytes = *bytes < want->bytes ? *bytes : want->bytes;
    return *bytes ? (const char *)m->data + first : NULL;
}

int cmn_reshard_find(struct cmn_reshard *s, const struct cmn_checkpoint_item *want, int rank,
                     const void **data, size_t *bytes)
{
    int own = s->by->same && (s->by->alike || !want->of_exchange);
    const struct cmn_made *m;

    *data = NULL;
    *bytes = 0;
    if (own || want->merge == CMN_MERGE_FIRST) {
        *data = section_of(s, want->name, own ? rank : 0, bytes);
    } else if (want->merge != CMN_MERGE_DROP &&
               (want->scale > 0 || want->merge == CMN_MERGE_ROWS)) {
        m = make(s, want);
        if (!m) {
            return -1;
        }
        *data = m->data;
        *bytes = m->bytes;
        if (want->merge == CMN_MERGE_ROWS) {
            *data = cut_rows(m, want, bytes);
            return 0;
        }
    } else {
        return 0;
    }
    if (!*data && want->optional) {
        return 0;
    }
    if (!*data || *bytes != want->bytes) {
        return cmn_fail("%s: section %s of rank %d holds %zu bytes, and %zu are needed",
                        cmn_checkpoint_path(s->from), want->name, rank, *data ? *bytes : 0,
                        want->bytes);
    }
    return 0;
}

void cmn_reshard_end(struct cmn_reshard *s)
{
    while (s->made) {
        struct cmn_made *m = s->made;
        s->made = m->next;
        free(m->data);
        free(m);
    }
}
