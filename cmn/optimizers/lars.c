#include "optimizers/lars.h"

#include <math.h>

/* Several sums at once: one alone would wait for each addition. */
enum { LANES = 8 };

static double norm(const float *x, size_t n)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            lane[k] += (double)x[i + k] * (double)x[i + k];
        }
    }
    for (; i < n; i++) {
        lane[0] += (double)x[i] * (double)x[i];
    }
    for (size_t k = 0; k < LANES; k++) {
        sum += lane[k];
    }
    return sqrt(sum);
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

    for (size_t i = 0; i < n; i++) {
        sum[i] *= rate;
    }
    how->decay *= rate;
    how->rate = 1;
}
