#include "optimizers/clip.h"

#include <math.h>

#include "base/reduce.h"

static double norm_of_mean(const struct cmn_exchange *x, int images)
{
    double sum = 0;

    for (int i = 0; i < x->tensors; i++) {
        sum += cmn_sum_of_squares(x->tensor[i].data, x->tensor[i].n);
    }
    return sqrt(sum) / images;
}

double cmn_clip_keeps(double limit, double norm)
{
    return limit / (norm + 1e-6);
}

void cmn_clip(const struct cmn_exchange *x, double limit, int images)
{
    double keeps = cmn_clip_keeps(limit, norm_of_mean(x, images));

    for (int i = 0; i < x->tensors && keeps < 1; i++) {
        cmn_scale(x->tensor[i].data, (float)keeps, x->tensor[i].n);
    }
}
