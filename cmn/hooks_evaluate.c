/* The calls of cmn.h that Darknet's evaluators make. */
#include "cmn.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "detector.h"
#include "job.h"
#include "log.h"
#include "report/map.h"

/* The ranks of this job; one without -cmn, and no MPI then. */
static const struct cmn_topology *ranks(void)
{
    static const struct cmn_topology alone = {.size = 1};

    return cmn_job.on ? &cmn_job.topology : &alone;
}

/* Ends the program, or the job. */
static void check(int result)
{
    if (result && !cmn_job.on) {
        fatal("%s", cmn_reason());
    }
    cmn_check(result);
}

static int check_plan(const struct cmn_precision_plan *plan)
{
    if (!(plan->iou > 0 && plan->iou <= 1)) {
        return cmn_fail("-iou_thresh %g: it must be above 0, and at most 1", plan->iou);
    }
    if (!(plan->confidence >= 0 && plan->confidence < 1)) {
        return cmn_fail("-thresh %g: it must be at least 0, and below 1", (double)plan->confidence);
    }
    if (plan->points != 0 && plan->points != 11 && plan->points != 101) {
        return cmn_fail("-points %d: it must be 0 (all), 11 or 101", plan->points);
    }
    return 0;
}

/* Rank 0 opens it before the long part. */
static FILE *open_json(const char *json)
{
    FILE *out = NULL;

    if (json && ranks()->rank == 0) {
        out = fopen(json, "w");
        check(out ? 0 : cmn_fail("-json %s: %s", json, strerror(errno)));
    }
    return out;
}

static void print(const struct cmn_map *m, FILE *out, const char *json)
{
    if (m->unlabelled) {
        fprintf(stderr,
                "%ld of %ld images have no label file: they count as images without boxes\n",
                m->unlabelled, m->images);
    }
    cmn_map_print(stdout, m);
    if (out) {
        check(cmn_map_json(out, json, m));
    }
    check(m->all->boxes ? 0 : cmn_fail("no image has a true box, so there is no mAP"));
}

void cmn_map(struct network *net, const char *list, const char *names, float thresh, float iou,
             int points, const char *json)
{
    struct cmn_box_set set;
    struct cmn_box_score score;
    /* 0.55 was read as a float, and thresholds are compared with 0.55. */
    struct cmn_precision_plan plan = {round((double)iou * 1e6) / 1e6, thresh, points};
    FILE *out;

    check(check_plan(&plan));
    out = open_json(json);
    cmn_boxes_open(&set, list, names ? names : "");
    check(cmn_evaluate_boxes(net, &set, &plan, ranks(), &score));
    if (ranks()->rank == 0) {
        print(&(struct cmn_map){score.images, score.unlabelled, score.classes, set.names,
                                score.each, &score.all, &plan},
              out, json);
    }
    free(score.each);
}
