#include "optimizers/clip.h"

double cmn_clip_keeps(double limit, double norm)
{
    double keeps = limit / (norm + 1e-6);

    return keeps < 1 ? keeps : 1;
}
