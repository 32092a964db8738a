#include "evaluators/ordered_output.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { BLOCK = 64, TAG = 7 };

/* What this rank has to say, and where it goes. */
struct stream {
    FILE *file;
    char *text; /* on ranks above 0 */
    size_t n, room;
};

struct cmn_ordered_output {
    const struct cmn_topology *t;
    int images, *number; /* of this rank, and their numbers in the list */
    int rounds, *end;    /* this rank's images up to the end of each round */
    int round;           /* the one that is worked on */
    struct stream **file;
    int files;
    struct stream values; /* records: how many floats, and the floats */
    cmn_take *take;
};

struct cmn_ordered_output *cmn_ordered_output_open(const struct cmn_topology *t)
{
    struct cmn_ordered_output *s = calloc(1, sizeof *s);

    if (!s) {
        cmn_fail("out of memory");
        return NULL;
    }
    s->t = t;
    return s;
}

/* ---- who does what ---- */

/* Images of each rank in the round that begins with image `first`; those at the end are shared evenly. */
static int block_of(int images, int first, int size)
{
    int even = (images - first + size - 1) / size;

    return even < BLOCK ? even : BLOCK;
}

int cmn_ordered_output_begin(struct cmn_ordered_output *s, int images)
{
    int rank = s->t->rank, size = s->t->size, most = images / size + BLOCK;

    s->number = calloc((size_t)most, sizeof *s->number);
    s->end = calloc((size_t)(images / size + 2), sizeof *s->end);
    if (!s->number || !s->end) {
        return cmn_fail("out of memory for a list of %d images", images);
    }
    for (int first = 0; first < images;) {
        int block = block_of(images, first, size);
        for (int i = first + rank * block; i < first + (rank + 1) * block && i < images; i++) {
            s->number[s->images++] = i;
        }
        s->end[s->rounds++] = s->images;
        first = images - first > block * size ? first + block * size : images;
    }
    for (int i = 0; i < s->files && rank > 0; i++) {
        fflush(s->file[i]->file);
        s->file[i]->n = 0;
    }
    return 0;
}

int cmn_ordered_output_images(const struct cmn_ordered_output *s)
{
    return s->images;
}

int cmn_ordered_output_index(const struct cmn_ordered_output *s, int i)
{
    return s->number[i];
}

/* ---- what is said ---- */

static int append(struct stream *m, const void *text, size_t n)
{
    if (n > m->room - m->n) {
        size_t room = 2 * (m->n + n) + 4096;
        char *more = realloc(m->text, room);
        if (!more) {
            return cmn_fail("out of memory for results");
        }
        m->text = more;
        m->room = room;
    }
    memcpy(m->text + m->n, text, n);
    m->n += n;
    return 0;
}

/* For fopencookie. */
static ssize_t write_stream(void *self, const char *text, size_t n)
{
    if (append(self, text, n)) {
        errno = ENOMEM;
        return 0;
    }
    return (ssize_t)n;
}

static int close_stream(void *self)
{
    ((struct stream *)self)->file = NULL;
    return 0;
}

FILE *cmn_ordered_output_file(struct cmn_ordered_output *s, const char *name)
{
    static const cookie_io_functions_t functions = {.write = write_stream, .close = close_stream};
    struct stream **more = realloc(s->file, (size_t)(s->files + 1) * sizeof(struct stream *));
    struct stream *m = calloc(1, sizeof *m);

    s->file = more ? more : s->file;
    if (more && m) {
        m->file = s->t->rank == 0 ? fopen(name, "w") : fopencookie(m, "w", functions);
    }
    if (!more || !m || !m->file) {
        free(m);
        return NULL;
    }
    s->file[s->files++] = m;
    return m->file;
}

int cmn_ordered_output_tell(struct cmn_ordered_output *s, float *values, int n, cmn_take *take)
{
    s->take = take;
    if (s->t->rank == 0) {
        take(values, n);
        return 0;
    }
    return append(&s->values, &n, sizeof n) ||
                   append(&s->values, values, (size_t)n * sizeof *values)
               ? -1
               : 0;
}

/* ---- a round's end ---- */

static int send(const struct cmn_ordered_output *s, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CMN_MPI_CHUNK) {
        size_t n = bytes - at < CMN_MPI_CHUNK ? bytes - at : CMN_MPI_CHUNK;
        if (cmn_mpi_check(MPI_Send((const char *)data + at, (int)n, MPI_BYTE, 0, TAG, s->t->world),
                          "MPI_Send")) {
            return -1;
        }
    }
    return 0;
}

static int receive(const struct cmn_ordered_output *s, int rank, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CMN_MPI_CHUNK) {
        size_t n = bytes - at < CMN_MPI_CHUNK ? bytes - at : CMN_MPI_CHUNK;
        if (cmn_mpi_check(MPI_Recv((char *)data + at, (int)n, MPI_BYTE, rank, TAG, s->t->world,
                                   MPI_STATUS_IGNORE),
                          "MPI_Recv")) {
            return -1;
        }
    }
    return 0;
}

/* Of each file, and then of the values: how much there is to say. */
static int send_all(struct cmn_ordered_output *s, uint64_t *bytes)
{
    for (int i = 0; i < s->files; i++) {
        if (fflush(s->file[i]->file)) {
            return cmn_fail("out of memory for results");
        }
        bytes[i] = s->file[i]->n;
    }
    bytes[s->files] = s->values.n;
    if (send(s, bytes, (size_t)(s->files + 1) * sizeof *bytes)) {
        return -1;
    }
    for (int i = 0; i <= s->files; i++) {
        struct stream *m = i < s->files ? s->file[i] : &s->values;
        if (send(s, m->text, m->n)) {
            return -1;
        }
        m->n = 0;
    }
    return 0;
}

static void take_values(const struct cmn_ordered_output *s, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        int n;
        memcpy(&n, text + at, sizeof n);
        at += sizeof n;
        s->take((float *)(text + at), n);
        at += (size_t)n * sizeof(float);
    }
}

static int receive_from(struct cmn_ordered_output *s, int rank, uint64_t *bytes)
{
    if (receive(s, rank, bytes, (size_t)(s->files + 1) * sizeof *bytes)) {
        return -1;
    }
    for (int i = 0; i <= s->files; i++) {
        char *text = malloc(bytes[i] + 1);
        int result = 0;
        if (!text || receive(s, rank, text, bytes[i])) {
            result = text ? -1 : cmn_fail("out of memory for results");
        } else if (i == s->files) {
            take_values(s, text, bytes[i]);
        } else {
            fwrite(text, 1, bytes[i], s->file[i]->file);
        }
        free(text);
        if (result) {
            return -1;
        }
    }
    return 0;
}

static int check_files(const struct cmn_ordered_output *s)
{
    for (int i = 0; i < s->files; i++) {
        if (ferror(s->file[i]->file)) {
            return cmn_fail("results cannot be written: is the disk full?");
        }
    }
    return 0;
}

static int end_round(struct cmn_ordered_output *s)
{
    uint64_t *bytes = calloc((size_t)s->files + 1, sizeof *bytes);
    int result = bytes ? 0 : cmn_fail("out of memory");

    if (bytes && s->t->rank > 0) {
        result = send_all(s, bytes);
    }
    for (int i = 1; i < s->t->size && s->t->rank == 0 && !result; i++) {
        result = receive_from(s, i, bytes);
    }
    free(bytes);
    if (s->t->rank == 0 && !result) {
        result = check_files(s);
    }
    s->round++;
    return result;
}

int cmn_ordered_output_done(struct cmn_ordered_output *s, int done)
{
    /* A rank without an image in the last round goes there when it has done all that it has. */
    while (s->round < s->rounds && done >= s->end[s->round]) {
        if (end_round(s)) {
            return cmn_fail_in("evaluation");
        }
    }
    return 0;
}

void cmn_ordered_output_close(struct cmn_ordered_output *s)
{
    for (int i = 0; i < s->files; i++) {
        free(s->file[i]->text);
        free(s->file[i]);
    }
    free(s->file);
    free(s->values.text);
    free(s->number);
    free(s->end);
    free(s);
}
