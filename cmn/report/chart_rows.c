#include "report/chart_rows.h"

#include <stdlib.h>

#include "base/memory.h"

/* More than a picture shows, and few enough to draw at once. */
enum { MOST = 4096 };

/* The mean of two values that stand for na and nb rows; a negative one is unknown. */
static double mean(double a, int na, double b, int nb)
{
    if (a < 0 || b < 0) {
        return a < 0 ? b : a;
    }
    return (a * na + b * nb) / (na + nb);
}

static double later(double a, double b)
{
    return b < 0 ? a : b;
}

/* b follows a: training loss, accuracy and speed are averaged, of the rest the later value
 * counts. */
static struct cmn_row merge(const struct cmn_row *a, int na, const struct cmn_row *b, int nb)
{
    struct cmn_row row = *b;

    row.loss = mean(a->loss, na, b->loss, nb);
    row.accuracy = mean(a->accuracy, na, b->accuracy, nb);
    row.images_per_s = mean(a->images_per_s, na, b->images_per_s, nb);
    row.validation_loss = later(a->validation_loss, b->validation_loss);
    row.validation_accuracy = later(a->validation_accuracy, b->validation_accuracy);
    row.validation_map = later(a->validation_map, b->validation_map);
    row.validation_map95 = later(a->validation_map95, b->validation_map95);
    return row;
}

static void halve(struct cmn_chart_rows *s)
{
    for (int i = 0; i < MOST / 2; i++) {
        s->row[i] = merge(&s->row[2 * i], 1, &s->row[2 * i + 1], 1);
    }
    s->rows = MOST / 2;
    s->each *= 2;
}

void cmn_chart_rows_add(struct cmn_chart_rows *s, const struct cmn_row *row)
{
    if (!s->row) {
        s->row = cmn_calloc(MOST, sizeof *s->row);
        s->each = 1;
    }
    if (s->in_last > 0 && s->in_last < s->each) {
        s->row[s->rows - 1] = merge(&s->row[s->rows - 1], s->in_last, row, 1);
        s->in_last++;
        return;
    }
    if (s->rows == MOST) {
        halve(s);
    }
    s->row[s->rows++] = *row;
    s->in_last = 1;
}

void cmn_chart_rows_free(struct cmn_chart_rows *s)
{
    free(s->row);
    *s = (struct cmn_chart_rows){0};
}
