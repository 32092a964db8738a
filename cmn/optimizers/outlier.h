/* cmn_outlier: steps whose loss, or whose gradient, is much greater than those before. Local, the
 * same on all ranks: what it decides from are sums that all of them have.
 *
 * Of the mean loss of a step's images, and of the norm of its mean gradient (cmn_clip_keeps), a mean and a
 * variance are kept over the steps that were used: over all of them, and from the 100th on with a
 * weight of 1/100 for the newest. A step is an outlier when either value is greater than the mean
 * by more than Z standard deviations, which count as 1 % of the mean at least; or when a value is
 * infinite, or the norm NaN (a network without a loss has a loss that is NaN). Such a step leaves the two means as they were. The first 50 steps are used
 * whatever else they bring. The 10th outlier in a row is no outlier any
 * more: the values have another level now (another size of images, another rate), the step is used,
 * and the means begin anew with it. */
#ifndef CMN_OUTLIER_H
#define CMN_OUTLIER_H

enum { CMN_OUTLIER_WARMUP = 50, CMN_OUTLIER_WINDOW = 100, CMN_OUTLIER_IN_A_ROW = 10 };

enum { CMN_OUTLIER_LOSS, CMN_OUTLIER_NORM, CMN_OUTLIER_VALUES };

/* Zeroed: nothing is known. A checkpoint keeps all of it. */
struct cmn_outlier {
    double mean[CMN_OUTLIER_VALUES], variance[CMN_OUTLIER_VALUES];
    long steps;  /* that were used, up to CMN_OUTLIER_WINDOW */
    long in_row; /* outliers since the last that was used */
};

enum cmn_outlier_answer {
    CMN_OUTLIER_USED,
    CMN_OUTLIER_ANEW,    /* used; the means begin anew with it */
    CMN_OUTLIER_LEFT_OUT /* by the value that *which says */
};

/* The values of a step are looked at, and remembered where it is used. */
enum cmn_outlier_answer cmn_outlier_check(struct cmn_outlier *o, double z,
                                          const double value[CMN_OUTLIER_VALUES], int *which);

/* The standard deviation of a value that counts. */
double cmn_outlier_deviation(const struct cmn_outlier *o, int which);

#endif
