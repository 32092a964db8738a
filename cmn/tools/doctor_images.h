/* The doctor's look at images and labels: each different image is decoded once, by one thread of
 * one rank. */
#ifndef CMN_DOCTOR_IMAGES_H
#define CMN_DOCTOR_IMAGES_H

#include "tools/doctor_files.h"

/* Collective, blocking. After cmn_doctor_files; ranks divide the images. Adds what is wrong to each
 * rank's problems, and fills d->sums on rank 0. */
void cmn_doctor_images(struct cmn_doctor *d);

#endif
