/* The doctor's check of images and labels. Each different image is decoded once, by one thread of
 * one rank. */
#ifndef CMN_DOCTOR_IMAGES_H
#define CMN_DOCTOR_IMAGES_H

#include "tools/doctor_files.h"

/* Collective, blocking, after cmn_doctor_files(). The ranks divide the images. Each rank adds the
 * problems that it finds to its d->problems; d->sums is filled on rank 0. */
void cmn_doctor_images(struct cmn_doctor *d);

#endif
