#include "optimizers/lars.h"

#include <math.h>

static double norm(const float *x, size_t n)
{
    return sqrt(cmn_sum_of_squares(x, n));
}

double cmn_lars_rate(const float *w, const float *sum, size_t n, double coefficient, double images,
                     double decay)
{
    double weights = norm(w, n), against = norm(sum, n) / images + decay * weights;

    return weights > 0 && against > 0 ? coefficient * weights / against : 1;
}

void cmn_lars_prepare(struct cmn_sgd_slice *how, const float *w, float *sum, size_t n,
                      double coefficient, int images, float decay)
{
    double l = cmn_lars_rate(w, sum, n, coefficient, images, (double)decay);
    float rate = (float)((double)how->rate * l);

    cmn_scale(sum, rate, n);
    how->decay *= rate;
    how->rate = 1;
}
