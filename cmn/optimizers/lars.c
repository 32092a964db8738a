#include "optimizers/lars.h"

#include <math.h>

static double norm(const float *x, size_t n)
{
    return sqrt(cmn_sum_of_squares(x, n));
}

double cmn_lars_rate_of(double weights, double sum, double coefficient, double images, double decay)
{
    double against = sum / images + decay * weights;

    return weights > 0 && against > 0 ? coefficient * weights / against : 1;
}

double cmn_lars_rate(const float *w, const float *sum, size_t n, double coefficient, double images,
                     double decay)
{
    return cmn_lars_rate_of(norm(w, n), norm(sum, n), coefficient, images, decay);
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
