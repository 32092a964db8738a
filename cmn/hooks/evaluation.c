/* The calls of cmn.h from Darknet's evaluators. */
#include "cmn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/reader.h"
#include "data/scatter.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/net.h"
#include "evaluators/classifier.h"
#include "evaluators/detector.h"
#include "evaluators/ordered_output.h"
#include "hooks/job.h"
#include "mpi/call.h"
#include "mpi/consistency.h"
#include "evaluators/map_table.h"
#include "trainer/feed.h"
#include "trainer/trainer.h"

/* Returns the topology of this job; without -cmn a topology of one rank that has no MPI. */
static const struct cmn_topology *ranks(void)
{
    static const struct cmn_topology alone = {.size = 1};

    return cmn_job.on ? &cmn_job.topology : &alone;
}

/* Ends the job if the network has no weights from a file of its own. Rank 0 reads them for all. */
static void require_weights(struct network *net, const char *command)
{
    if (ranks()->rank == 0 && cmn_net_traits(cmn_net_of(net)).lacks_weights) {
        cmn_fatal("%s needs a file with the weights of all layers of this cfg, and no more: "
                  "darknet %s DATA CFG WEIGHTS",
                  command, command);
    }
}

static void check_plan(const struct cmn_precision_plan *plan)
{
    if (!(plan->iou > 0 && plan->iou <= 1)) {
        cmn_fatal("-iou_thresh %g: it must be above 0, and at most 1", plan->iou);
    }
    if (!(plan->confidence >= 0 && plan->confidence < 1)) {
        cmn_fatal("-thresh %g: it must be at least 0, and below 1", (double)plan->confidence);
    }
    if (plan->points != 0 && plan->points != 11 && plan->points != 101) {
        cmn_fatal("-points %d: it must be 0 (all), 11 or 101", plan->points);
    }
}

/* Opens the file of -json on rank 0, before the long evaluation, so that a bad name ends the job
 * early. It only replaces a file that this command has written before. */
static FILE *open_json(const char *json)
{
    char found[sizeof CMN_MAP_TABLE_HEAD] = "";
    int fd;

    if (!json || ranks()->rank != 0) {
        return NULL;
    }
    fd = cmn_open_in_place("-json", json, O_RDWR | O_CREAT);
    if (fd < 0) {
        cmn_fatal_reason();
    }
    if (pread(fd, found, sizeof found - 1, 0) > 0 && strcmp(found, CMN_MAP_TABLE_HEAD)) {
        cmn_fatal("-json %s: what is there is no table of detector map, and would be lost: give "
                  "another name",
                  json);
    }
    if (ftruncate(fd, 0) && errno != EINVAL) { /* not of a device or pipe */
        cmn_fatal("-json %s: %s", json, strerror(errno));
    }
    return fdopen(fd, "w");
}

static void print(const struct cmn_map_table *m, FILE *out, const char *json)
{
    if (m->unlabelled) {
        fprintf(stderr, CMN_WITHOUT_LABELS "\n", m->unlabelled, m->images);
    }
    cmn_map_table_print(stdout, m);
    if (out) {
        cmn_map_table_json(out, json, m);
    }
    if (!m->all->boxes) {
        cmn_fatal(CMN_NO_TRUE_BOX);
    }
}

void cmn_evaluate_detector(struct network *net, const char *list, const char *names, float thresh,
                           float iou, int points, const char *json)
{
    struct cmn_box_set set;
    struct cmn_box_score score;
    /* A value like 0.55 was parsed as a float; rounded to 6 digits it equals the double 0.55 that
     * thresholds are compared with. */
    struct cmn_precision_plan plan = {round((double)iou * 1e6) / 1e6, thresh, points};
    FILE *out;

    check_plan(&plan);
    require_weights(net, "detector map");
    cmn_status_compute("evaluation");
    out = open_json(json);
    cmn_boxes_open(&set, list, names ? names : "");
    cmn_evaluate_boxes(cmn_net_of(net), &set, &plan, ranks(), &score);
    if (score.nonsense) {
        cmn_fatal(
            "the network's outputs are no numbers for %ld of %ld images: its weights are worth "
            "nothing",
            score.nonsense, score.images);
    }
    if (ranks()->rank == 0) {
        print(&(struct cmn_map_table){score.images, score.unlabelled, score.classes, set.names,
                                      score.each, &score.all, &plan},
              out, json);
    }
    free(score.each);
}

/* ---- classifiers ---- */

int cmn_validate_classifier(struct network *net, char **paths, int n, char **labels, int classes,
                            int top)
{
    struct cmn_labelled_images set = {paths, n, labels, classes, top};
    const struct cmn_trainer *t = net->cmn;
    struct cmn_score score;

    if (!t) {
        return 0;
    }
    cmn_status_compute("evaluation");
    require_weights(net, cmn_command_name(cmn_job.command));
    if (classes > net->outputs) {
        cmn_fatal("the .data file has classes=%d, and the network has %d outputs", classes,
                  net->outputs);
    }
    if (top < 1 || top > classes) {
        cmn_fatal("top=%d in the .data file: it must be from 1 to the %d classes", top, classes);
    }
    /* Darknet sets the batch to 1 before it validates, but the layers still have room for more
     * images. */
    cmn_net_set_batch(cmn_net_of(net), t->feed.share.local);
    cmn_evaluate(cmn_net_of(net), &set, t->feed.share.local, &cmn_job.topology, &score);
    printf("%ld: top 1: %f, top %d: %f\n", score.images, (double)score.top1 / (double)score.images,
           top, (double)score.topk / (double)score.images);
    printf("validation: %ld images, %ld right, %ld in top %d, loss %f\n", score.images, score.top1,
           score.topk, top, score.loss);
    return 1;
}

/* ---- before Darknet's evaluators ---- */

/* Darknet writes some result formats with a fixed list of class names, and reads that many scores.
 * Returns whether this is one of them. */
static int has_own_names(int classes)
{
    static const struct {
        const char *eval;
        int least, most;
    } known[] = {{"bdd", 1, 10}, {"kitti", 1, 3}, {"coco", 1, 80}, {"imagenet", 200, INT_MAX}};
    /* bdd and kitti are AlexeyAB's. */
    size_t i = cmn_tree.has_more ? 0 : 2, n = sizeof known / sizeof known[0];

    while (i < n && strcmp(cmn_job.eval, known[i].eval) != 0) {
        i++;
    }
    if (i < n && (classes < known[i].least || classes > known[i].most)) {
        cmn_fatal("eval=%s in the .data file is for %s %d classes, and the network has %d: "
                  "eval=voc is for any",
                  cmn_job.eval, known[i].least > 1 ? "at least" : "at most",
                  known[i].least > 1 ? known[i].least : known[i].most, classes);
    }
    return i < n;
}

void cmn_before_evaluator(struct network *net, const char *weights)
{
    enum { IMAGENET = 200 };
    const char *name;
    int classes, prints_names;

    if (!cmn_job.on) {
        return;
    }
    name = cmn_command_name(cmn_job.command);
    classes = cmn_net_detected_classes(cmn_net_of(net));
    if (weights) {
        cmn_compare_file(&cmn_job.topology, weights);
    } else if (cmn_tree.has_more) {
        cmn_fatal("%s needs weights: darknet %s DATA CFG WEIGHTS -cmn", name, name);
    } else {
        require_weights(net, name);
    }
    if (cmn_job.command->answer == CMN_BOXES && classes <= 0) {
        cmn_fatal("%s: this network finds no boxes", name);
    }
    if (cmn_job.map_lines && net->layers[net->n - 1].softmax_tree &&
        (cmn_job.map_lines < IMAGENET || cmn_job.mapped >= classes)) {
        cmn_fatal("map= of the .data file has %d lines and leads to class %ld: it needs a line for "
                  "each of ImageNet's %d, and the network has %d classes",
                  cmn_job.map_lines, cmn_job.mapped, IMAGENET, classes);
    }
    prints_names = !strcmp(cmn_job.command->verb, "map") ||
                   (!strcmp(cmn_job.command->verb, "valid") && !has_own_names(classes));
    if (prints_names && cmn_job.command->answer == CMN_BOXES) {
        cmn_boxes_names(cmn_job.names[0] ? cmn_job.names : "data/names.list", classes);
    }
}

void cmn_after_weights(const char *file, FILE *rest, int whole)
{
    const char *why;

    if (!cmn_job.on || (whole && (cmn_checkpoint_follows_weights(rest) || getc(rest) == EOF))) {
        return;
    }
    why = whole
              ? "has more values than the network of the cfg: it is another network's, or one with "
                "other classes"
              : "has fewer values than the network of the cfg";
    if (cmn_job.command && cmn_job.command->does == CMN_EVALUATES) {
        cmn_fatal("%s %s", file, why);
    } else if (whole) {
        cmn_warn("%s %s; layers behind the first that differs begin with numbers of others", file,
                 why);
    }
}

void cmn_before_map(struct network *net, const char *data, const char *list, int is_train,
                    const char *names, int n, int classes)
{
    struct cmn_box_set set;

    if (!cmn_job.on) {
        return;
    }
    if (n != classes) {
        cmn_fatal("-map: %s has %d names for classes=%d in the cfg: it needs one line for each "
                  "class",
                  names, n, classes);
    }
    if (is_train) {
        cmn_say("-map: %s names no valid= list: the mAP is that of the training list %s", data,
                list);
    }
    cmn_boxes_open(&set, list, "");
    cmn_feed_scatter_paths(&cmn_job, set.paths, set.images);
    if (cmn_job.options.data != CMN_DATA_SCATTER) { /* which has not begun yet */
        cmn_scatter_require(set.paths, set.images, &cmn_job.topology);
    }
    cmn_boxes_check(cmn_net_of(net), &set, &cmn_job.topology);
}

/* ---- boxes of all ranks ---- */

/* A detection as floats: number of its image, box, score of each class. SCORES_AT: floats before
 * the scores. */
enum { SCORES_AT = 5 };

static int has_score(const detection *d, int classes)
{
    int i = 0;

    while (i < classes && !(d->prob[i] > 0)) {
        i++;
    }
    return i < classes;
}

/* Packs the detections of this rank's images into *boxes and frees them. Returns the number of
 * floats; the caller frees *boxes. */
static int pack_boxes(struct detection **found, const int *n, int images, int classes,
                      float **boxes)
{
    size_t each = SCORES_AT + (size_t)classes, rows = 0;
    float *to;

    for (int i = ranks()->rank; i < images; i += ranks()->size) {
        rows += (size_t)n[i];
    }
    to = *boxes = cmn_malloc(rows * each + 1, sizeof *to);
    for (int i = ranks()->rank; i < images; i += ranks()->size) {
        for (int j = 0; j < n[i]; j++) {
            const detection *d = &found[i][j];
            if (has_score(d, classes)) {
                const float head[SCORES_AT] = {(float)i, d->bbox.x, d->bbox.y, d->bbox.w,
                                               d->bbox.h};
                memcpy(to, head, sizeof head);
                memcpy(to + SCORES_AT, d->prob, (size_t)classes * sizeof *to);
                to += each;
            }
        }
        free_detections(found[i], n[i]);
    }
    if (to - *boxes > INT_MAX / ranks()->size) {
        cmn_fatal("evaluation: this rank has found more boxes at once than MPI can count");
    }
    return (int)(to - *boxes);
}

static void unpack_boxes(const float *boxes, size_t rows, int classes, struct detection **found,
                         int *n, int images)
{
    size_t each = SCORES_AT + (size_t)classes;

    memset(n, 0, (size_t)images * sizeof *n);
    for (size_t r = 0; r < rows; r++) {
        n[(int)boxes[r * each]]++;
    }
    for (int i = 0; i < images; i++) {
        found[i] = cmn_calloc((size_t)n[i], sizeof *found[i]);
        n[i] = 0;
    }
    for (size_t r = 0; r < rows; r++) {
        const float *from = boxes + r * each;
        int i = (int)from[0];
        detection *d = &found[i][n[i]++];
        d->bbox = (box){from[1], from[2], from[3], from[4]};
        d->classes = classes;
        d->prob = cmn_malloc((size_t)classes, sizeof *d->prob);
        memcpy(d->prob, from + SCORES_AT, (size_t)classes * sizeof *d->prob);
    }
}

void cmn_share_boxes(struct network *net, struct detection **found, int *n, int images)
{
    const struct cmn_topology *t = ranks();
    int classes, mine, total = 0, *count, *at;
    float *boxes, *all;

    if (t->size == 1) {
        return;
    }
    classes = net->layers[net->n - 1].classes;
    mine = pack_boxes(found, n, images, classes, &boxes);
    count = cmn_calloc((size_t)t->size, sizeof *count);
    at = cmn_calloc((size_t)t->size, sizeof *at);
    MPI_CALL(MPI_Allgather(&mine, 1, MPI_INT, count, 1, MPI_INT, t->world));
    for (int i = 0; i < t->size; i++) {
        at[i] = total;
        total += count[i];
    }
    all = cmn_malloc((size_t)total + 1, sizeof *all);
    MPI_CALL(MPI_Allgatherv(boxes, mine, MPI_FLOAT, all, count, at, MPI_FLOAT, t->world));
    unpack_boxes(all, (size_t)total / (SCORES_AT + (size_t)classes), classes, found, n, images);
    free(all);
    free(boxes);
    free(count);
    free(at);
}

/* ---- results in the order of the list ---- */

/* Returns the ordered output of this job. It is never closed, because Darknet closes its files at
 * any time. */
static struct cmn_ordered_output *output(void)
{
    static struct cmn_ordered_output *opened;

    if (!opened) {
        opened = cmn_ordered_output_open(&cmn_job.topology);
    }
    return opened;
}

char **cmn_split_paths(char **paths, int *n)
{
    char **mine;

    if (!cmn_job.on) {
        return paths;
    }
    cmn_status_compute("evaluation");
    cmn_ordered_output_begin(output(), *n);
    *n = cmn_ordered_output_images(output());
    mine = cmn_calloc((size_t)*n + 1, sizeof *mine);
    for (int i = 0; i < *n; i++) {
        mine[i] = paths[cmn_ordered_output_index(output(), i)];
    }
    return mine;
}

int cmn_global_index(int i)
{
    return cmn_job.on ? cmn_ordered_output_index(output(), i) : i;
}

FILE *cmn_open_result(const char *name)
{
    FILE *file = cmn_job.on ? cmn_ordered_output_file(output(), name) : fopen(name, "w");

    if (!file) {
        cmn_fatal("Couldn't open file: %s (%s): make its folder, or name another one with results= "
                  "in the .data file",
                  name, strerror(errno));
    }
    return file;
}

void cmn_close_result(FILE *file)
{
    int bad = ferror(file);

    errno = bad ? EIO : 0;
    if ((cmn_job.on ? cmn_ordered_output_close(output(), file) : fclose(file)) || bad) {
        cmn_fatal("evaluation: results cannot be written: %s", strerror(errno));
    }
}

void cmn_collect(float *values, int n, void (*take)(float *values, int n))
{
    if (!cmn_job.on) {
        take(values, n);
        return;
    }
    cmn_ordered_output_collect(output(), values, n, take);
}

void cmn_images_done(int done)
{
    if (cmn_job.on) {
        cmn_ordered_output_done(output(), done);
    }
}
