#include "optimizers/clip.h"

#include <math.h>

#include "base/reduce.h"

double cmn_clip_norm(const struct cmn_exchange *x, int images)
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

int cmn_clip(const struct cmn_exchange *x, double limit, double norm)
{
    double keeps = cmn_clip_keeps(limit, norm);

    for (int i = 0; i < x->tensors && keeps < 1; i++) {
        cmn_scale(x->tensor[i].data, (float)keeps, x->tensor[i].n);
    }
    return keeps < 1;
}
