#include "evaluators/ordered_output.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/memory.h"
#include "mpi/call.h"

enum { BLOCK = 64, TAG = 7 };

/* One file of results; on ranks other than 0 it is in memory. */
struct stream {
    FILE *file; /* NULL: closed */
    const char *name;
    struct cmn_draft draft; /* rank 0's */
    char *text;             /* what was written since the last round; valid after fflush() */
    size_t bytes;
};

struct cmn_ordered_output {
    const struct cmn_topology *t;
    int images, *index; /* number of this rank's images; their indices in the list */
    int rounds, *end;   /* number of rounds; this rank's images up to the end of each round */
    int round;          /* the current round */
    struct stream **file;
    int files;
    /* On ranks other than 0: for each image the number of floats, and the floats. */
    struct stream values;
    cmn_take *take;
};

static void open_memory(struct stream *m)
{
    m->file = open_memstream(&m->text, &m->bytes);
    if (!m->file) {
        cmn_fatal("out of memory for results");
    }
}

struct cmn_ordered_output *cmn_ordered_output_open(const struct cmn_topology *t)
{
    struct cmn_ordered_output *s = cmn_calloc(1, sizeof *s);

    s->t = t;
    if (t->rank > 0) {
        open_memory(&s->values);
    }
    return s;
}

FILE *cmn_ordered_output_file(struct cmn_ordered_output *s, const char *name)
{
    struct stream *m = cmn_calloc(1, sizeof *m);

    for (int i = 0; i < s->files; i++) {
        if (!strcmp(s->file[i]->name, name)) {
            cmn_fatal(
                "%s is the file of two classes, whose names are the same: give each one of its "
                "own",
                name);
        }
    }
    if (s->t->rank > 0) {
        open_memory(m);
    } else if (cmn_draft_open(&m->draft, name)) {
        free(m);
        return NULL;
    } else {
        m->file = m->draft.out;
    }
    m->name = cmn_strdup(name);
    s->file = cmn_realloc(s->file, (size_t)s->files + 1, sizeof(struct stream *));
    s->file[s->files++] = m;
    return m->file;
}

int cmn_ordered_output_close(struct cmn_ordered_output *s, FILE *file)
{
    int i = 0;

    while (s->file[i]->file != file) {
        i++;
    }
    s->file[i]->file = NULL;
    return s->t->rank ? fclose(file) : cmn_draft_commit(&s->file[i]->draft, s->file[i]->name);
}

/* ---- the work split ---- */

/* Returns the images of each rank in the round that begins with image `first`. The last images are
 * split evenly. */
static int block_of(int images, int first, int size)
{
    int even = (images - first + size - 1) / size;

    return even < BLOCK ? even : BLOCK;
}

void cmn_ordered_output_begin(struct cmn_ordered_output *s, int images)
{
    int rank = s->t->rank, size = s->t->size;

    s->index = cmn_calloc((size_t)(images / size + BLOCK), sizeof *s->index);
    s->end = cmn_calloc((size_t)(images / size + 2), sizeof *s->end);
    for (int first = 0; first < images;) {
        int block = block_of(images, first, size);
        for (int i = first + rank * block; i < first + (rank + 1) * block && i < images; i++) {
            s->index[s->images++] = i;
        }
        s->end[s->rounds++] = s->images;
        first = images - first > block * size ? first + block * size : images;
    }
    for (int i = 0; i < s->files && rank > 0; i++) {
        rewind(s->file[i]->file);
    }
}

int cmn_ordered_output_images(const struct cmn_ordered_output *s)
{
    return s->images;
}

int cmn_ordered_output_index(const struct cmn_ordered_output *s, int i)
{
    return s->index[i];
}

void cmn_ordered_output_collect(struct cmn_ordered_output *s, float *values, int n, cmn_take *take)
{
    s->take = take;
    if (s->t->rank == 0) {
        take(values, n);
    } else {
        fwrite(&n, sizeof n, 1, s->values.file);
        fwrite(values, sizeof *values, (size_t)n, s->values.file);
    }
}

/* ---- the end of a round ---- */

/* Returns stream i: the files, and after them the values. */
static struct stream *stream(struct cmn_ordered_output *s, int i)
{
    return i < s->files ? s->file[i] : &s->values;
}

static void send_results(struct cmn_ordered_output *s)
{
    for (int i = 0; i <= s->files; i++) {
        struct stream *m = stream(s, i);
        uint64_t bytes;
        fflush(m->file); /* which sets the error, too */
        if (ferror(m->file)) {
            cmn_fatal("out of memory for results");
        }
        bytes = m->bytes;
        cmn_mpi_send(&bytes, sizeof bytes, 0, TAG, s->t->world);
        cmn_mpi_send(m->text, m->bytes, 0, TAG, s->t->world);
        rewind(m->file);
    }
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

static void receive_results(struct cmn_ordered_output *s, int rank)
{
    for (int i = 0; i <= s->files; i++) {
        uint64_t bytes;
        char *text;
        cmn_mpi_recv(&bytes, sizeof bytes, rank, TAG, s->t->world);
        text = cmn_malloc(bytes, 1);
        cmn_mpi_recv(text, bytes, rank, TAG, s->t->world);
        if (i == s->files) {
            take_values(s, text, bytes);
        } else {
            fwrite(text, 1, bytes, s->file[i]->file);
        }
        free(text);
    }
}

static void end_round(struct cmn_ordered_output *s)
{
    if (s->t->rank > 0) {
        send_results(s);
    }
    for (int rank = 1; rank < s->t->size && s->t->rank == 0; rank++) {
        receive_results(s, rank);
    }
    for (int i = 0; i < s->files && s->t->rank == 0; i++) {
        if (fflush(s->file[i]->file) || ferror(s->file[i]->file)) {
            cmn_fatal("evaluation: %s: results cannot be written: is the disk full?",
                      s->file[i]->name);
        }
    }
    s->round++;
}

void cmn_ordered_output_done(struct cmn_ordered_output *s, int done)
{
    /* A rank without an image in the last round enters it as soon as it has finished its own
     * images. */
    while (s->round < s->rounds && done >= s->end[s->round]) {
        end_round(s);
    }
}
