#include "evaluators/detector.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/labels.h"
#include "data/scatter.h"
#include "engine/inference.h"
#include "engine/net.h"
#include "evaluators/classifier.h"
#include "mpi/call.h"

/* The thresholds of `detector valid`. */
static const struct cmn_detect_thresholds thresholds = {
    .score = .005f, .hierarchy = .5f, .nms = .45f};

/* ---- results of this rank's images ---- */

struct results {
    struct cmn_found *found;
    size_t n, room;
    long *boxes;    /* number of true boxes of each class */
    long counts[3]; /* number of images; without a label file; with NaN or Inf outputs */
};

static void add_found(struct results *r, const struct cmn_found *f)
{
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 4096;
        r->found = cmn_realloc(r->found, r->room, sizeof *r->found);
    }
    r->found[r->n++] = *f;
}

/* ---- images, loaded one ahead ---- */

struct loader {
    const struct cmn_net *net;
    const char *path;
    struct cmn_image image;
    pthread_t thread;
};

static void *load(void *self)
{
    struct loader *l = self;

    l->image = cmn_image_load(l->net, l->path,
                              cmn_net_traits(l->net).letterboxes ? CMN_IMAGE_LETTERBOX
                                                                 : CMN_IMAGE_STRETCH);
    return NULL;
}

static void start_loading(struct loader *l, const char *path)
{
    int error;

    l->path = path;
    error = pthread_create(&l->thread, NULL, load, l);
    if (error) {
        cmn_fatal("evaluation: no thread to load images: %s; raise the limit of processes "
                  "(ulimit -u)",
                  strerror(error));
    }
}

/* ---- true boxes ---- */

/* Reads the true boxes of an image: those that have an area, with the network's classes. Counts
 * them in *r. The caller frees the array. */
static struct cmn_truth *read_truth(const struct cmn_net *net, const char *path, int classes,
                                    struct results *r, size_t *n)
{
    char name[CMN_LABEL_FILE];
    struct cmn_label *label = NULL;
    struct cmn_truth *truth;
    const char *why;
    int labels = 0;

    *n = 0;
    why = cmn_label_file(path, name);
    if (why) {
        cmn_fatal("%s: %s", path, why);
    }
    if (access(cmn_scatter_path(name), F_OK) && errno == ENOENT) {
        r->counts[1]++;
    } else {
        label = cmn_labels_read(name, &labels);
    }
    truth = cmn_calloc((size_t)labels, sizeof *truth);
    for (int i = 0; i < labels; i++) {
        const struct cmn_label *b = &label[i];
        int class = cmn_net_label_class(net, b->class);
        if (class < 0) {
            cmn_fatal(CMN_BAD_CLASS "%s", name, b->line, b->class, classes, classes - 1,
                      b->class >= 0 && b->class < classes ? ", to which its map= does not lead"
                                                          : "");
        }
        if (b->width > 0 && b->height > 0) {
            truth[(*n)++] = (struct cmn_truth){class, {b->x, b->y, b->width, b->height}};
            r->boxes[class]++;
        }
    }
    free(label);
    return truth;
}

/* ---- found boxes ---- */

/* Returns the box in fractions of the image, clipped at its edges as in `detector valid`. A box
 * outside of the image gets a negative size, and so no area. */
static struct cmn_box inside(const struct cmn_detection *b, int w, int h)
{
    double left = b->x - b->width / 2., right = b->x + b->width / 2.;
    double top = b->y - b->height / 2., bottom = b->y + b->height / 2.;

    left = left < 0 ? 0 : left;
    top = top < 0 ? 0 : top;
    right = right > w ? w : right;
    bottom = bottom > h ? h : bottom;
    return (struct cmn_box){(float)((left + right) / 2 / w), (float)((top + bottom) / 2 / h),
                            (float)((right - left) / w), (float)((bottom - top) / h)};
}

static void find(struct cmn_net *net, const struct cmn_image *image, int number, int classes,
                 struct results *r)
{
    struct cmn_found f = {.image = number};
    struct cmn_detections all = cmn_net_detect(net, image, &thresholds);

    r->counts[2] += !cmn_net_found_numbers(net);
    for (int i = 0; i < all.n; i++) {
        f.box = inside(&all.each[i], image->width, image->height);
        for (f.class = 0; f.class < classes; f.class ++) {
            f.score = all.each[i].score[f.class];
            if (f.score > 0) {
                add_found(r, &f);
                f.index++;
            }
        }
    }
    cmn_detections_free(&all);
}

static void evaluate_image(struct cmn_net *net, const struct loader *l, int number, int classes,
                           const struct cmn_precision_plan *plan, struct results *r)
{
    size_t first = r->n, truths;
    struct cmn_truth *truth = read_truth(net, l->path, classes, r, &truths);

    find(net, &l->image, number, classes, r);
    cmn_match(r->found + first, r->n - first, truth, truths, plan);
    free(truth);
    r->counts[0]++;
}

/* Evaluates this rank's images. */
static void evaluate_split(struct cmn_net *net, const struct cmn_box_set *set, int classes,
                           const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                           struct results *r)
{
    struct loader now, next = {.net = net};

    if (t->rank < set->images) {
        start_loading(&next, set->paths[t->rank]);
    }
    for (int i = t->rank; i < set->images; i += t->size) {
        pthread_join(next.thread, NULL);
        now = next;
        if (i + t->size < set->images) {
            start_loading(&next, set->paths[i + t->size]);
        }
        cmn_random_named(CMN_RANDOM_EVALUATION, (uint64_t)i);
        evaluate_image(net, &now, i, classes, plan, r);
        cmn_image_free(&now.image);
    }
    cmn_random_common();
}

/* ---- all ranks' results ---- */

/* Returns all ranks' boxes on rank 0, which frees them, with *n their number; NULL on other
 * ranks. */
static struct cmn_found *gather_found(const struct results *mine, const struct cmn_topology *t,
                                      size_t *n)
{
    long have = (long)mine->n, *counts = cmn_calloc((size_t)t->size, sizeof *counts);
    int *count = cmn_calloc((size_t)t->size, sizeof *count);
    int *at = cmn_calloc((size_t)t->size, sizeof *at);
    struct cmn_found *all = NULL;
    MPI_Datatype type;

    MPI_CALL(MPI_Gather(&have, 1, MPI_LONG, counts, 1, MPI_LONG, 0, t->world));
    for (int i = 0; i < t->size && t->rank == 0; i++) {
        if (*n + (size_t)counts[i] > INT_MAX) {
            cmn_fatal("evaluation: all ranks together have found more than %d boxes, which MPI "
                      "cannot count: evaluate on parts of the list",
                      INT_MAX);
        }
        at[i] = (int)*n;
        count[i] = (int)counts[i];
        *n += (size_t)counts[i];
    }
    if (t->rank == 0) {
        all = cmn_calloc(*n, sizeof *all);
    }
    MPI_CALL(MPI_Type_contiguous((int)sizeof *all, MPI_BYTE, &type));
    MPI_CALL(MPI_Type_commit(&type));
    MPI_CALL(MPI_Gatherv(mine->found, (int)have, type, all, count, at, type, 0, t->world));
    MPI_Type_free(&type);
    free(counts);
    free(count);
    free(at);
    return all;
}

static void sum_to_rank_0(long *x, int n, const struct cmn_topology *t)
{
    MPI_CALL(MPI_Reduce(t->rank ? x : MPI_IN_PLACE, x, n, MPI_LONG, MPI_SUM, 0, t->world));
}

static void add_up(struct results *r, int classes, const struct cmn_precision_plan *plan,
                   const struct cmn_topology *t, struct cmn_box_score *score)
{
    if (t->size > 1) {
        size_t n = 0;
        struct cmn_found *all = gather_found(r, t, &n);
        sum_to_rank_0(r->boxes, classes, t);
        sum_to_rank_0(r->counts, 3, t);
        free(r->found);
        r->found = all;
        r->n = n;
    }
    if (t->rank != 0) {
        return;
    }
    score->images = r->counts[0];
    score->unlabelled = r->counts[1];
    score->nonsense = r->counts[2];
    score->classes = classes;
    score->each = cmn_calloc((size_t)classes, sizeof *score->each);
    cmn_precision(r->found, r->n, r->boxes, classes, plan, score->each, &score->all);
}

/* ---- the evaluation ---- */

/* Checks network and names. Returns the number of classes. */
static int check_network(const struct cmn_net *net, const struct cmn_box_set *set)
{
    int layers = cmn_net_layers(net), classes = cmn_net_detected_classes(net), names = 0;

    if (!cmn_net_detects(net)) {
        cmn_fatal("this network finds no boxes: its last layer must be [yolo], [region] or "
                  "[detection]");
    }
    for (int i = 0; i < layers; i++) {
        int own = cmn_net_box_classes(net, i);
        if (own >= 0 && own != classes) {
            cmn_fatal("layer %d of the cfg has classes=%d, and the last one classes=%d", i, own,
                      classes);
        }
    }
    while (set->names && set->names[names]) {
        names++;
    }
    if (set->names && names < classes) {
        cmn_fatal("the list of names has %d of them for classes=%d in the cfg", names, classes);
    }
    return classes;
}

void cmn_boxes_open(struct cmn_box_set *set, const char *list, const char *names)
{
    int n;

    set->paths = cmn_read_paths(list, &set->images);
    set->names = names[0] ? cmn_read_names(names, &n) : NULL;
}

void cmn_boxes_names(const char *names, int classes)
{
    int n;

    cmn_read_names(names, &n);
    if (n < classes) {
        cmn_fatal(CMN_TOO_FEW_NAMES, names, n, "names", classes);
    }
}

void cmn_boxes_check(const struct cmn_net *net, const struct cmn_box_set *set,
                     const struct cmn_topology *t)
{
    struct results r = {0};
    int classes = check_network(net, set);
    long sum[2] = {0}; /* true boxes, images without a label file */
    size_t n;

    r.boxes = cmn_calloc((size_t)classes, sizeof *r.boxes);
    for (int i = t->rank; i < set->images; i += t->size) {
        free(read_truth(net, set->paths[i], classes, &r, &n));
        sum[0] += (long)n;
    }
    sum[1] = r.counts[1];
    free(r.boxes);
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_LONG, MPI_SUM, t->world));
    if (!sum[0]) {
        cmn_fatal("validation: " CMN_NO_TRUE_BOX);
    }
    if (sum[1] && t->rank == 0) {
        cmn_warn("validation: " CMN_WITHOUT_LABELS, sum[1], (long)set->images);
    }
}

void cmn_evaluate_boxes(struct cmn_net *net, const struct cmn_box_set *set,
                        const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                        struct cmn_box_score *score)
{
    struct results r = {0};
    int batch = cmn_net_batch(net), classes;

    *score = (struct cmn_box_score){0};
    classes = check_network(net, set);
    r.boxes = cmn_calloc((size_t)classes, sizeof *r.boxes);
    cmn_net_set_batch(net, 1);
    evaluate_split(net, set, classes, plan, t, &r);
    add_up(&r, classes, plan, t, score);
    cmn_net_set_batch(net, batch);
    free(r.found);
    free(r.boxes);
}
