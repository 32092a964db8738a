#include "evaluators/detector.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "darknet.h"
#include "evaluators/classifier.h"
#include "base/log.h"
#include "base/random.h"

/* As `detector valid` does it. */
static const float least_score = .005f, hierarchy_threshold = .5f, nms_threshold = .45f;

/* ---- what is known of this rank's images ---- */

struct results {
    struct cmn_found *found;
    size_t n, room;
    long *boxes;    /* true ones of each class */
    long counts[2]; /* images, images without a label file */
};

static int add_found(struct results *r, const struct cmn_found *f)
{
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 4096;
        struct cmn_found *more = realloc(r->found, room * sizeof *more);
        if (!more) {
            return cmn_fail("out of memory for %zu boxes", room);
        }
        r->found = more;
        r->room = room;
    }
    r->found[r->n++] = *f;
    return 0;
}

/* ---- images, loaded one ahead ---- */

struct loader {
    const char *path;
    int w, h, c, letterbox;
    image input;
    int image_w, image_h;
    pthread_t thread;
};

static void *load(void *self)
{
    struct loader *l = self;
    image whole = load_image((char *)l->path, 0, 0, l->c);

    l->input = l->letterbox ? letterbox_image(whole, l->w, l->h) : resize_image(whole, l->w, l->h);
    l->image_w = whole.w;
    l->image_h = whole.h;
    free_image(whole);
    return NULL;
}

static int start_loading(struct loader *l, const char *path)
{
    l->path = path;
    return pthread_create(&l->thread, NULL, load, l) ? cmn_fail("a thread cannot be started") : 0;
}

/* ---- true boxes ---- */

/* Darknet's own way from an image to its labels, as in fill_truth_detection. `name` has room for 4096 bytes. */
static void label_file(const char *path, char *name)
{
    static const char *const change[][2] = {
        {"images", "labels"}, {"JPEGImages", "labels"}, {"raw", "labels"}, {".jpg", ".txt"},
        {".png", ".txt"},     {".JPG", ".txt"},         {".JPEG", ".txt"}};

    find_replace((char *)path, (char *)change[0][0], (char *)change[0][1], name);
    for (size_t i = 1; i < sizeof change / sizeof change[0]; i++) {
        find_replace(name, (char *)change[i][0], (char *)change[i][1], name);
    }
}

/* *truth, which the caller frees, becomes the boxes that have an area. */
static int read_truth(const char *path, int classes, struct results *r, struct cmn_truth **truth,
                      size_t *n)
{
    char name[4096];
    box_label *labels;
    int all = 0;

    *n = 0;
    *truth = NULL;
    label_file(path, name);
    if (strlen(name) < 4 || strcmp(name + strlen(name) - 4, ".txt")) {
        return cmn_fail("%s: the name leads to no label file: names of images end with .jpg, .png, "
                        ".JPG or .JPEG",
                        path);
    }
    if (access(name, F_OK)) {
        r->counts[1]++;
        return 0;
    }
    labels = read_boxes(name, &all);
    *truth = calloc((size_t)all + 1, sizeof **truth);
    for (int i = 0; *truth && i < all; i++) {
        const box_label *b = &labels[i];
        if (b->id < 0 || b->id >= classes) {
            cmn_fail("%s: box %d is of class %d, and the network knows the classes 0 to %d", name,
                     i + 1, b->id, classes - 1);
            free(labels);
            return -1;
        }
        if (b->w > 0 && b->h > 0) {
            (*truth)[(*n)++] = (struct cmn_truth){b->id, {b->x, b->y, b->w, b->h}};
            r->boxes[b->id]++;
        }
    }
    free(labels);
    return *truth ? 0 : cmn_fail("out of memory for %d boxes", all);
}

/* ---- found boxes ---- */

/* In parts of the image, cut off at its edges as `detector valid` does it. What lies outside has a negative size, and no
 * area. */
static struct cmn_box inside(const box *b, int w, int h)
{
    double left = b->x - b->w / 2., right = b->x + b->w / 2.;
    double top = b->y - b->h / 2., bottom = b->y + b->h / 2.;

    left = left < 0 ? 0 : left;
    top = top < 0 ? 0 : top;
    right = right > w ? w : right;
    bottom = bottom > h ? h : bottom;
    return (struct cmn_box){(float)((left + right) / 2 / w), (float)((top + bottom) / 2 / h),
                            (float)((right - left) / w), (float)((bottom - top) / h)};
}

static int find(network *net, const struct loader *l, int number, int classes, struct results *r)
{
    struct cmn_found f = {.image = number};
    int n = 0, result = 0;
    detection *dets;

    network_predict(net, l->input.data);
    dets = get_network_boxes(net, l->image_w, l->image_h, least_score, hierarchy_threshold, NULL, 0,
                             &n);
    do_nms_sort(dets, n, classes, nms_threshold);
    for (int i = 0; i < n; i++) {
        f.box = inside(&dets[i].bbox, l->image_w, l->image_h);
        for (f.class = 0; f.class < classes && !result; f.class ++) {
            f.score = dets[i].prob[f.class];
            if (f.score > 0) {
                result = add_found(r, &f);
                f.index++;
            }
        }
    }
    free_detections(dets, n);
    return result;
}

static int look_at(network *net, const struct loader *l, int number, int classes,
                   const struct cmn_precision_plan *plan, struct results *r)
{
    size_t first = r->n, truths;
    struct cmn_truth *truth;
    int result;

    result = read_truth(l->path, classes, r, &truth, &truths) || find(net, l, number, classes, r) ||
             cmn_match(r->found + first, r->n - first, truth, truths, plan);
    free(truth);
    r->counts[0]++;
    return result ? -1 : 0;
}

static int look_at_mine(network *net, const struct cmn_box_set *set, int classes,
                        const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                        struct results *r)
{
    /* A network of [detection] is made for images that are stretched, as in `yolo valid`. */
    struct loader now, next = {.w = net->w,
                               .h = net->h,
                               .c = net->c,
                               .letterbox = net->layers[net->n - 1].type != DETECTION};
    int result = 0, loading = 0;

    for (int i = t->rank; i < set->images && !result; i += t->size) {
        if (!loading && start_loading(&next, set->paths[i])) {
            return -1;
        }
        pthread_join(next.thread, NULL);
        now = next;
        loading = i + t->size < set->images;
        if (loading && start_loading(&next, set->paths[i + t->size])) {
            return -1;
        }
        cmn_random_named(CMN_RANDOM_EVALUATION, (uint64_t)i);
        result = look_at(net, &now, i, classes, plan, r);
        free_image(now.input);
    }
    /* It writes to `next`, also when this image's labels were the end. */
    if (result && loading) {
        pthread_join(next.thread, NULL);
    }
    cmn_random_common();
    return result;
}

/* ---- all ranks' results ---- */

/* *all becomes all ranks' boxes on rank 0, which frees them; there *n is their number. */
static int gather_found(const struct results *mine, const struct cmn_topology *t,
                        struct cmn_found **all, size_t *n)
{
    long have = (long)mine->n, *counts = calloc((size_t)t->size, sizeof *counts);
    int *count = calloc((size_t)t->size, sizeof *count), *at = calloc((size_t)t->size, sizeof *at);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int result = -1;

    if (!counts || !count || !at) {
        cmn_fail("out of memory for %d ranks", t->size);
        goto out;
    }
    if (cmn_mpi_check(MPI_Gather(&have, 1, MPI_LONG, counts, 1, MPI_LONG, 0, t->world),
                      "MPI_Gather")) {
        goto out;
    }
    for (int i = 0; i < t->size && t->rank == 0; i++) {
        if (*n + (size_t)counts[i] > INT_MAX) {
            cmn_fail("more boxes than MPI can count");
            goto out;
        }
        at[i] = (int)*n;
        count[i] = (int)counts[i];
        *n += (size_t)counts[i];
    }
    *all = calloc(*n + 1, sizeof **all);
    if (!*all) {
        cmn_fail("out of memory for %zu boxes", *n);
        goto out;
    }
    if (cmn_mpi_check(MPI_Type_contiguous((int)sizeof **all, MPI_BYTE, &type), "MPI_Type") ||
        cmn_mpi_check(MPI_Type_commit(&type), "MPI_Type_commit") ||
        cmn_mpi_check(MPI_Gatherv(mine->found, (int)have, type, *all, count, at, type, 0, t->world),
                      "MPI_Gatherv")) {
        goto out;
    }
    result = 0;
out:
    if (type != MPI_DATATYPE_NULL) {
        MPI_Type_free(&type);
    }
    free(counts);
    free(count);
    free(at);
    return result;
}

static int sum_to_rank_0(long *x, int n, const struct cmn_topology *t)
{
    return cmn_mpi_check(
        MPI_Reduce(t->rank ? x : MPI_IN_PLACE, x, n, MPI_LONG, MPI_SUM, 0, t->world), "MPI_Reduce");
}

static int put_together(struct results *r, int classes, const struct cmn_precision_plan *plan,
                        const struct cmn_topology *t, struct cmn_box_score *score)
{
    if (t->size > 1) {
        struct cmn_found *all = NULL;
        size_t n = 0;
        int result = gather_found(r, t, &all, &n) || sum_to_rank_0(r->boxes, classes, t) ||
                     sum_to_rank_0(r->counts, 2, t);
        free(r->found);
        r->found = all;
        r->n = n;
        if (result) {
            return -1;
        }
    }
    if (t->rank != 0) {
        return 0;
    }
    score->images = r->counts[0];
    score->unlabelled = r->counts[1];
    score->classes = classes;
    score->each = calloc((size_t)classes, sizeof *score->each);
    if (!score->each) {
        return cmn_fail("out of memory for %d classes", classes);
    }
    return cmn_precision(r->found, r->n, r->boxes, classes, plan, score->each, &score->all);
}

/* ---- the whole ---- */

static int finds_boxes(const layer *l)
{
    return l->type == YOLO || l->type == REGION || l->type == DETECTION;
}

int cmn_finds_boxes(const struct network *net)
{
    const layer *last = &net->layers[net->n - 1];

    return finds_boxes(last) && last->classes > 0;
}

static int check_network(const network *net, const struct cmn_box_set *set)
{
    const layer *last = &net->layers[net->n - 1];
    int names = 0;

    if (!cmn_finds_boxes(net)) {
        return cmn_fail("this network finds no boxes: its last layer must be [yolo], [region] or "
                        "[detection]");
    }
    for (int i = 0; i < net->n; i++) {
        if (finds_boxes(&net->layers[i]) && net->layers[i].classes != last->classes) {
            return cmn_fail("layer %d of the cfg has classes=%d, and the last one classes=%d", i,
                            net->layers[i].classes, last->classes);
        }
    }
    while (set->names && set->names[names]) {
        names++;
    }
    if (set->names && names < last->classes) {
        return cmn_fail("the list of names has %d of them for classes=%d in the cfg", names,
                        last->classes);
    }
    return 0;
}

void cmn_boxes_open(struct cmn_box_set *set, const char *list_name, const char *names)
{
    list *paths = get_paths((char *)list_name);

    set->images = paths->size;
    set->paths = (char **)list_to_array(paths);
    set->names = names[0] ? get_labels((char *)names) : NULL;
    free_list(paths);
}

int cmn_evaluate_boxes(struct network *net, const struct cmn_box_set *set,
                       const struct cmn_precision_plan *plan, const struct cmn_topology *t,
                       struct cmn_box_score *score)
{
    struct results r = {0};
    int batch = net->batch, classes, result;

    memset(score, 0, sizeof *score);
    if (cmn_evaluator_refuses(net) || check_network(net, set)) {
        return -1;
    }
    classes = net->layers[net->n - 1].classes;
    r.boxes = calloc((size_t)classes, sizeof *r.boxes);
    if (!r.boxes) {
        return cmn_fail("out of memory for %d classes", classes);
    }
    set_batch_network(net, 1);
    result =
        look_at_mine(net, set, classes, plan, t, &r) || put_together(&r, classes, plan, t, score);
    set_batch_network(net, batch);
    free(r.found);
    free(r.boxes);
    return result ? -1 : 0;
}
