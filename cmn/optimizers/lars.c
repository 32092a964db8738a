#include "optimizers/lars.h"

double cmn_lars_rate(double weights, double sum, double coefficient, double images, double decay)
{
    double against = sum / images + decay * weights;

    return weights > 0 && against > 0 ? coefficient * weights / against : 1;
}
