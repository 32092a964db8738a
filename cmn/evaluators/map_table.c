#include "evaluators/map_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/fatal.h"

static const char *name_of(const struct cmn_map_table *m, int i, char text[32])
{
    snprintf(text, 32, "%d", i);
    return m->names ? m->names[i] : text;
}

/* Formats a fraction, or "-" if x is negative: there is no true box. */
static const char *fraction(double x, char text[32])
{
    snprintf(text, 32, x < 0 ? "-" : "%.4f", x);
    return text;
}

static void print_row(FILE *out, const char *name, int width, const struct cmn_precision *p)
{
    char own[32], mean[32];

    fprintf(out, "%-*s %8ld %8s %8s %9.4f %7.4f %7.4f %8ld %8ld %8ld %8.4f\n", width, name,
            p->boxes, fraction(p->ap[CMN_IOU_OWN], own), fraction(cmn_precision_mean(p), mean),
            p->precision, p->recall, p->f1, p->tp, p->fp, p->fn, p->iou);
}

static const char *method(int points, char text[64])
{
    snprintf(text, 64, "the mean at %d points of recall", points);
    return points ? text : "the area below the envelope";
}

void cmn_map_table_print(FILE *out, const struct cmn_map_table *m)
{
    const struct cmn_precision_plan *plan = m->plan;
    int width = (int)strlen("all, or their mean");
    char own[16], text[64], number[32];

    snprintf(own, sizeof own, "AP@%.4g", plan->iou);
    for (int i = 0; i < m->classes; i++) {
        int n = (int)strlen(name_of(m, i, number));
        width = n > width ? n : width;
    }
    fprintf(out, "%ld images, %ld true boxes, %ld found; AP is %s\n", m->images, m->all->boxes,
            m->all->found, method(plan->points, text));
    fprintf(out,
            "precision to FN: boxes with a score above %.4g, matched where intersection over union "
            "reaches %.4g\n\n",
            (double)plan->confidence, plan->iou);
    fprintf(out, "%-*s %8s %8s %8s %9s %7s %7s %8s %8s %8s %8s\n", width, "class", "boxes", own,
            "AP@.5:95", "precision", "recall", "F1", "TP", "FP", "FN", "mean IoU");
    for (int i = 0; i < m->classes; i++) {
        print_row(out, name_of(m, i, number), width, &m->each[i]);
    }
    print_row(out, "all, or their mean", width, m->all);
    fprintf(out, "\n");
    if (plan->iou != cmn_iou_threshold(plan, 0)) {
        fprintf(out, "mAP@%.4g = %s\n", plan->iou, fraction(m->all->ap[CMN_IOU_OWN], text));
    }
    fprintf(out, "mAP@0.5 = %s\n", fraction(m->all->ap[0], text));
    fprintf(out, "mAP@0.5:0.95 = %s\n", fraction(cmn_precision_mean(m->all), text));
    fflush(out);
}

/* Returns null if x is negative: there is no true box. */
static cJSON *fraction_json(double x)
{
    return x < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(x);
}

static cJSON *precision_json(const struct cmn_precision *p)
{
    cJSON *o = cJSON_CreateObject(), *ap = cJSON_CreateArray();

    for (int i = 0; i < CMN_IOU_STEPS; i++) {
        cJSON_AddItemToArray(ap, fraction_json(p->ap[i]));
    }
    cJSON_AddNumberToObject(o, "boxes", (double)p->boxes);
    cJSON_AddNumberToObject(o, "found", (double)p->found);
    cJSON_AddItemToObject(o, "ap", fraction_json(p->ap[CMN_IOU_OWN]));
    cJSON_AddItemToObject(o, "ap50", fraction_json(p->ap[0]));
    cJSON_AddItemToObject(o, "ap50_95", fraction_json(cmn_precision_mean(p)));
    cJSON_AddItemToObject(o, "ap_by_iou", ap);
    cJSON_AddNumberToObject(o, "tp", (double)p->tp);
    cJSON_AddNumberToObject(o, "fp", (double)p->fp);
    cJSON_AddNumberToObject(o, "fn", (double)p->fn);
    cJSON_AddNumberToObject(o, "precision", p->precision);
    cJSON_AddNumberToObject(o, "recall", p->recall);
    cJSON_AddNumberToObject(o, "f1", p->f1);
    cJSON_AddNumberToObject(o, "mean_iou", p->iou);
    return o;
}

static char *to_json(const struct cmn_map_table *m)
{
    cJSON *o = cJSON_CreateObject(), *classes = cJSON_CreateArray();
    char number[32], *text;

    cJSON_AddNumberToObject(o, "images", (double)m->images);
    cJSON_AddNumberToObject(o, "images_without_labels", (double)m->unlabelled);
    cJSON_AddNumberToObject(o, "iou_threshold", m->plan->iou);
    cJSON_AddNumberToObject(o, "confidence_threshold", (double)m->plan->confidence);
    cJSON_AddNumberToObject(o, "points", m->plan->points);
    cJSON_AddItemToObject(o, "map50", fraction_json(m->all->ap[0]));
    cJSON_AddItemToObject(o, "map50_95", fraction_json(cmn_precision_mean(m->all)));
    cJSON_AddItemToObject(o, "all", precision_json(m->all));
    cJSON_AddItemToObject(o, "classes", classes);
    for (int i = 0; i < m->classes; i++) {
        cJSON *one = precision_json(&m->each[i]);
        cJSON_AddStringToObject(one, "name", name_of(m, i, number));
        cJSON_AddItemToArray(classes, one);
    }
    text = cJSON_Print(o);
    cJSON_Delete(o);
    return text;
}

void cmn_map_table_json(FILE *out, const char *file, const struct cmn_map_table *m)
{
    char *text = to_json(m);
    int failed;

    if (!text) {
        cmn_fatal("%s: out of memory", file);
    }
    errno = 0;
    failed = fprintf(out, "%s\n", text) < 0;
    if (fclose(out) || failed) {
        cmn_fatal("%s: %s", file, strerror(errno));
    }
    free(text);
}
