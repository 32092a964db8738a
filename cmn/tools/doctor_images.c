#include "tools/doctor_images.h"

#include <cblas.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/values.h"
#include "data/labels.h"
#include "data/pixels.h"
#include "engine/inference.h"
#include "mpi/files.h"

/* Sums are added up as numbers of one type. */
enum { SUMS = sizeof(struct cmn_doctor_sums) / sizeof(long long) };

/* The work that the threads of this rank share. */
struct work {
    struct cmn_doctor *d;
    struct cmn_doctor_line **mine; /* this rank's different images */
    uint64_t *hash;                /* of each image's file; 0: the image cannot be read */
    int n;
    atomic_int next;
    pthread_mutex_t lock; /* guards sums */
    struct cmn_doctor_sums sums;
    atomic_long *trained; /* for each class: its images, or its boxes, in the training list */
};

/* Returns a number that grows with the list, the line l of the list, and the line of its label
 * file. */
static int64_t place_of(const struct cmn_doctor_line *l, int line)
{
    int64_t image = ((int64_t)l->list << 32) + l->line;

    return (image << 20) + (line < 1 << 20 ? line : (1 << 20) - 1);
}

#define ADD(w, kind, l, format, ...)                                           \
    cmn_problem_add(&(w)->d->problems, kind, place_of(l, 0), "%s:%d: " format, \
                    (w)->d->list_name[(l)->list], (l)->line, __VA_ARGS__)

/* ---- label files ---- */

static void check_label(struct work *w, const struct cmn_doctor_line *l, const char *file, int line,
                        const struct cmn_label *label)
{
    struct cmn_problems *p = &w->d->problems;
    int64_t place = place_of(l, line);
    const char *fault;

    if (label->class < 0 || label->class >= w->d->classes) {
        cmn_problem_add(p, CMN_UNKNOWN_CLASS, place, CMN_BAD_CLASS, file, line, label->class,
                        w->d->classes, w->d->classes - 1);
    } else if (l->list == 0) {
        atomic_fetch_add(&w->trained[label->class], 1);
    }
    fault = cmn_box_fault(label->x, label->y, label->width, label->height);
    if (fault) {
        cmn_problem_add(p,
                        fault == cmn_box_is_empty      ? CMN_EMPTY_BOX
                        : fault == cmn_box_reaches_out ? CMN_BOX_CUT
                                                       : CMN_BOX_OUTSIDE,
                        place, "%s:%d: a box of %g x %g around %g, %g: %s", file, line,
                        (double)label->width, (double)label->height, (double)label->x,
                        (double)label->y, fault);
    }
}

/* Returns the number of boxes, or -1 if there is no file. */
static long read_label_file(struct work *w, const struct cmn_doctor_line *l, const char *name)
{
    struct cmn_labels in;
    struct cmn_label label;
    int error = cmn_labels_open(&in, name), got, bad = 0;
    long boxes = 0;

    if (error == ENOENT) {
        ADD(w, CMN_NO_LABEL_FILE, l,
            "%s: no label file for %s; create an empty one for an image without objects", name,
            l->text);
        return -1;
    }
    if (error) {
        ADD(w, CMN_BAD_LABEL, l, "%s: %s", name, strerror(error));
        return 0;
    }
    while ((got = cmn_labels_next(&in, &label))) {
        if (in.failed) {
            ADD(w, CMN_BAD_LABEL, l, "%s", cmn_reason());
            break;
        }
        boxes++;
        if (got > 0) {
            check_label(w, l, name, in.line, &label);
        } else if (!bad++) { /* only the first one of a file */
            cmn_problem_add(&w->d->problems, CMN_BAD_LABEL, place_of(l, in.line), "%s",
                            cmn_reason());
        }
    }
    cmn_labels_close(&in);
    return boxes;
}

static void check_boxes(struct work *w, const struct cmn_doctor_line *l,
                        struct cmn_doctor_sums *sums)
{
    char name[CMN_LABEL_FILE];
    const char *why;
    long boxes;

    if (strlen(l->text) > CMN_LABEL_FILE / 2) {
        ADD(w, CMN_NO_LABEL_FILE, l, "the path has more than %d bytes: %.60s…", CMN_LABEL_FILE / 2,
            l->text);
        return;
    }
    why = cmn_label_file(l->text, name);
    if (why) {
        ADD(w, CMN_NO_LABEL_FILE, l, "%s: %s", l->text, why);
        return;
    }
    boxes = read_label_file(w, l, name);
    sums->labels += boxes >= 0;
    sums->boxes += boxes > 0 ? boxes : 0;
    if (w->d->max_boxes && boxes > w->d->max_boxes) {
        ADD(w, CMN_MANY_BOXES, l, CMN_MANY_LABELLED, name, boxes, w->d->max_boxes);
    }
}

/* ---- classes of a classifier ---- */

/* Looks for the class in the path of an image as Darknet's fill_truth() does. */
static void check_class(struct work *w, const struct cmn_doctor_line *l)
{
    const struct cmn_doctor *d = w->d;
    int found = 0, first = 0, second = 0;

    for (int i = 0; i < d->labels; i++) {
        if (strstr(l->text, d->label[i])) {
            found++;
            first = found == 1 ? i : first;
            second = found == 2 ? i : second;
        }
    }
    if (!found && d->classes > 1 && d->labels) {
        ADD(w, CMN_NO_LABEL, l, "%s: no label is a part of this path", l->text);
    }
    if (found > 1) {
        ADD(w, CMN_MANY_LABELS, l, "%s: %d labels are parts of this path: %s, %s%s", l->text, found,
            d->label[first], d->label[second], found > 2 ? ", …" : "");
    }
    if (found && l->list == 0) {
        atomic_fetch_add(&w->trained[first], 1);
    }
}

/* ---- images ---- */

static void check_image(struct work *w, const struct cmn_doctor_line *l, uint64_t *hash,
                        struct cmn_doctor_sums *sums)
{
    int width, height, channels;
    const char *reason = "not a file"; /* reading a FIFO may never end */
    unsigned char *pixels = NULL;
    struct stat about;
    size_t bytes;

    *hash = 0;
    sums->files++;
    if (stat(l->text, &about) || !S_ISFIFO(about.st_mode)) {
        pixels = cmn_pixels_load(l->text, w->d->channels, &width, &height, &channels, &reason);
    }
    if (pixels && cmn_pixels_turned()) {
        ADD(w, CMN_TURNED_IMAGE, l, CMN_TURNED, l->text);
    }
    if (pixels) {
        free(pixels);
        cmn_files_hash(l->text, &bytes, hash); /* the kernel still has the file in its cache */
        sums->readable++;
        sums->width += width;
        sums->height += height;
        sums->bytes += (long long)width * height * channels;
    } else if (access(l->text, F_OK)) {
        ADD(w, CMN_MISSING_IMAGE, l, "%s: %s", l->text, reason);
        return; /* without the image its labels do not matter */
    } else {
        ADD(w, CMN_UNREADABLE_IMAGE, l, "%s: %s", l->text, reason);
    }
    if (w->d->task == CMN_DOCTOR_BOXES) {
        check_boxes(w, l, sums);
    } else if (w->d->task == CMN_DOCTOR_CLASSES) {
        check_class(w, l);
    }
}

static void *run(void *work)
{
    struct cmn_doctor_sums sums = {0};
    struct work *w = work;
    int i;

    while ((i = atomic_fetch_add(&w->next, 1)) < w->n) {
        check_image(w, w->mine[i], &w->hash[i], &sums);
    }
    pthread_mutex_lock(&w->lock);
    for (size_t k = 0; k < SUMS; k++) {
        ((long long *)&w->sums)[k] += ((const long long *)&sums)[k];
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Runs as many threads as OpenBLAS has, which is this rank's part of the cores. */
static void run_threads(struct work *w)
{
    int threads = openblas_get_num_threads(), started = 0;
    pthread_t *thread = cmn_calloc((size_t)threads, sizeof *thread);

    while (started < threads - 1 && started < w->n &&
           !pthread_create(&thread[started], NULL, run, w)) {
        started++;
    }
    run(w); /* this thread is one of them */
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    free(thread);
}

/* ---- lists ---- */

/* The first line of each list that has a text, or an image with certain bytes; NULL: none has. */
struct first {
    UT_hash_handle hh;
    const struct cmn_doctor_line *line[2];
};

/* Called in the order of the lines. Returns an earlier line with the same key, of the same list if
 * there is one; NULL: there is none. The key must last as long as the table. */
static const struct cmn_doctor_line *earlier(struct first **table, const void *key, size_t bytes,
                                             const struct cmn_doctor_line *l)
{
    const struct cmn_doctor_line *found;
    struct first *f;

    HASH_FIND(hh, *table, key, bytes, f);
    if (!f) {
        f = cmn_calloc(1, sizeof *f);
        HASH_ADD_KEYPTR(hh, *table, key, bytes, f);
    }
    found = f->line[l->list] ? f->line[l->list] : f->line[!l->list];
    f->line[l->list] = f->line[l->list] ? f->line[l->list] : l;
    return found;
}

static void forget(struct first **table)
{
    struct first *f, *next;

    HASH_ITER(hh, *table, f, next)
    {
        HASH_DEL(*table, f);
        free(f);
    }
}

static void add_repeat(struct cmn_doctor *d, const struct cmn_doctor_line *l,
                       const struct cmn_doctor_line *first)
{
    if (l->list == first->list) {
        cmn_doctor_add(d, CMN_LISTED_TWICE, place_of(l, 0), "%s:%d: %s is in line %d already",
                       d->list_name[l->list], l->line, l->text, first->line);
    } else {
        cmn_doctor_add(d, CMN_TRAINED_AND_VALID, place_of(l, 0), "%s:%d: %s is in %s:%d, too",
                       d->list_name[l->list], l->line, l->text, d->list_name[first->list],
                       first->line);
    }
}

/* Marks the lines whose text an earlier line has, and adds them as problems. Returns the number of
 * the other lines. */
static int find_repeats(struct cmn_doctor *d)
{
    const struct cmn_doctor_line *first;
    struct first *table = NULL;
    int different = 0;

    for (int list = 0; list < 2; list++) {
        for (int i = 0; i < d->lines[list]; i++) {
            struct cmn_doctor_line *l = &d->line[list][i];
            first = earlier(&table, l->text, strlen(l->text), l);
            if (first) {
                l->repeat = 1;
                add_repeat(d, l, first);
            }
            different += !first;
        }
    }
    forget(&table);
    return different;
}

/* ---- copies ---- */

static void add_copy(struct cmn_doctor *d, const struct cmn_doctor_line *l,
                     const struct cmn_doctor_line *first)
{
    cmn_doctor_add(d, l->list == first->list ? CMN_SAME_BYTES : CMN_TRAINED_AND_VALID,
                   place_of(l, 0), "%s:%d: %s is a copy of %s, %s:%d", d->list_name[l->list],
                   l->line, l->text, first->text, d->list_name[first->list], first->line);
}

/* Collective. Finds images with the same bytes, also if different ranks have read them. Of the `n`
 * different images rank r has read the numbers r, r + size, … */
static void find_copies(struct work *w, int n)
{
    const struct cmn_topology *t = w->d->t;
    int here = t->rank == 0, number = 0;
    uint64_t *hash = cmn_malloc(here ? (size_t)n + 1 : 1, sizeof *hash);
    const struct cmn_doctor_line *first;
    struct first *table = NULL;
    int *count = cmn_calloc((size_t)t->size, sizeof *count);
    int *at = cmn_calloc((size_t)t->size, sizeof *at);

    for (int r = 0; r < t->size; r++) {
        count[r] = (n - r + t->size - 1) / t->size;
        at[r] = r ? at[r - 1] + count[r - 1] : 0;
    }
    MPI_CALL(MPI_Gatherv(w->hash, w->n, MPI_UINT64_T, hash, count, at, MPI_UINT64_T, 0, t->world));
    for (int list = 0; list < 2 && here; list++) {
        for (int i = 0; i < w->d->lines[list]; i++) {
            const struct cmn_doctor_line *l = &w->d->line[list][i];
            const uint64_t *its = &hash[at[number % t->size] + number / t->size];
            number += !l->repeat;
            first = !l->repeat && *its ? earlier(&table, its, sizeof *its, l) : NULL;
            if (first) {
                add_copy(w->d, l, first);
            }
        }
    }
    forget(&table);
    free(hash);
    free(count);
    free(at);
}

/* ---- all of it ---- */

/* Collective. Adds up the sums and the counts of the classes on rank 0. */
static void add_up(struct work *w)
{
    const struct cmn_topology *t = w->d->t;

    w->d->sums = w->sums;
    MPI_CALL(MPI_Reduce(t->rank ? &w->sums : MPI_IN_PLACE, &w->d->sums, SUMS, MPI_LONG_LONG,
                        MPI_SUM, 0, t->world));
    MPI_CALL(MPI_Reduce(t->rank ? w->trained : MPI_IN_PLACE, w->trained, w->d->classes, MPI_LONG,
                        MPI_SUM, 0, t->world));
}

/* Adds the classes of which the training list has no image or box. */
static void check_trained(const struct work *w)
{
    struct cmn_doctor *d = w->d;
    int classes = d->task == CMN_DOCTOR_CLASSES ? d->labels : d->classes, missing = 0;
    size_t used = 0;
    char names[320] = "";

    for (int i = 0; i < classes && d->task != CMN_DOCTOR_IMAGES; i++) {
        if (w->trained[i] || ++missing > CMN_PROBLEMS_SHOWN + 1 || used >= sizeof names) {
            continue;
        }
        if (missing > CMN_PROBLEMS_SHOWN) {
            used += (size_t)snprintf(names + used, sizeof names - used, ", …");
        } else if (d->task == CMN_DOCTOR_BOXES) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d",
                                     missing > 1 ? ", " : "", i);
        } else {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.30s",
                                     missing > 1 ? ", " : "", d->label[i]);
        }
    }
    if (missing && d->lines[0]) {
        cmn_doctor_add(d, CMN_UNUSED_CLASS, 0, "%s: no %s of %d of the %d classes: %s",
                       d->list_name[0], d->task == CMN_DOCTOR_BOXES ? "box" : "image", missing,
                       classes, names);
    }
}

void cmn_doctor_images(struct cmn_doctor *d)
{
    struct work w = {.d = d, .lock = PTHREAD_MUTEX_INITIALIZER};
    int different = find_repeats(d), number = 0;

    w.mine = cmn_calloc((size_t)different / (size_t)d->t->size + 1, sizeof *w.mine);
    w.hash = cmn_calloc((size_t)different / (size_t)d->t->size + 1, sizeof *w.hash);
    w.trained = cmn_calloc((size_t)d->classes + 1, sizeof *w.trained);
    for (int list = 0; list < 2; list++) {
        for (int i = 0; i < d->lines[list]; i++) {
            struct cmn_doctor_line *l = &d->line[list][i];
            if (!l->repeat && number++ % d->t->size == d->t->rank) {
                w.mine[w.n++] = l;
            }
        }
    }
    run_threads(&w);
    add_up(&w);
    find_copies(&w, different);
    check_trained(&w);
    free(w.mine);
    free(w.hash);
    free(w.trained);
}
