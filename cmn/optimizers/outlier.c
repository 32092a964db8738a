#include "optimizers/outlier.h"

#include <math.h>

double cmn_outlier_deviation(const struct cmn_outlier *o, int which)
{
    double least = 0.01 * fabs(o->mean[which]), deviation = sqrt(o->variance[which]);

    return deviation > least ? deviation : least;
}

/* The value by which the step is an outlier, or -1. */
static int find(const struct cmn_outlier *o, double z, const double *value)
{
    for (int i = 0; i < CMN_OUTLIER_VALUES; i++) {
        int known = i != CMN_OUTLIER_LOSS || !isnan(value[i]);
        if ((known && !isfinite(value[i])) ||
            (o->steps >= CMN_OUTLIER_WARMUP &&
             value[i] > o->mean[i] + z * cmn_outlier_deviation(o, i))) {
            return i;
        }
    }
    return -1;
}

static void remember(struct cmn_outlier *o, const double *value)
{
    o->steps += o->steps < CMN_OUTLIER_WINDOW;
    o->in_row = 0;
    for (int i = 0; i < CMN_OUTLIER_VALUES; i++) {
        double part = 1 / (double)o->steps, away = isnan(value[i]) ? 0 : value[i] - o->mean[i];
        o->mean[i] += part * away;
        o->variance[i] = (1 - part) * (o->variance[i] + part * away * away);
    }
}

enum cmn_outlier_answer cmn_outlier_check(struct cmn_outlier *o, double z,
                                          const double value[CMN_OUTLIER_VALUES], int *which)
{
    *which = find(o, z, value);
    if (*which < 0) {
        remember(o, value);
        return CMN_OUTLIER_USED;
    }
    /* NaN and infinite values are no level, however many come. */
    if (!isfinite(value[*which]) || ++o->in_row < CMN_OUTLIER_IN_A_ROW) {
        return CMN_OUTLIER_LEFT_OUT;
    }
    *o = (struct cmn_outlier){.steps = 0};
    remember(o, value);
    return CMN_OUTLIER_ANEW;
}
