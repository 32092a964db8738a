/* Extension, with cmn_sync_bn: batch normalisation over the micro-batches of all ranks. */
#ifndef CMN_SYNC_BATCH_NORM_H
#define CMN_SYNC_BATCH_NORM_H

#include "trainer/extension.h"

/* Local. Whether cmn_sync_bn=on and a micro-batch runs; also with one rank. */
int cmn_sync_batch_norm_runs(const struct cmn_step *p);

/* Collective, blocking. In such a micro-batch exchanges what a layer has found in its `count`
 * values a filter (engine/batch_norm.h), forward or backward; else nothing. */
void cmn_sync_batch_norm_forward(struct cmn_step *p, float *mean, float *variance, int n,
                                 int count);
void cmn_sync_batch_norm_backward(struct cmn_step *p, float *mean_delta, float *variance_delta,
                                  int n, int count);

#endif
