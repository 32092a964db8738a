/* What the doctor knows about a training, and its check of the cfg, the .data file and the lists:
 * it finds numbers that contradict each other and files that are missing. */
#ifndef CMN_DOCTOR_FILES_H
#define CMN_DOCTOR_FILES_H

#include "config/cfg_file.h"
#include "mpi/topology.h"
#include "tools/problems.h"

/* What the network is trained with: images whose labels the doctor does not check, images with a
 * class, or images with boxes. */
enum cmn_doctor_task { CMN_DOCTOR_IMAGES, CMN_DOCTOR_CLASSES, CMN_DOCTOR_BOXES };

/* A line of a list. */
struct cmn_doctor_line {
    const char *text;
    int line;   /* number in the file, from 1 on */
    int list;   /* 0: train, 1: valid */
    int repeat; /* an earlier line of either list has the same text */
};

/* Sums over all ranks, which only rank 0 has after cmn_doctor_images(). */
struct cmn_doctor_sums {
    long long files, readable;      /* number of different images; of those that can be read */
    long long bytes, width, height; /* sums over the readable images; bytes: decoded, 1 per value */
    long long labels, boxes;        /* number of label files, and of boxes in them */
};

struct cmn_doctor {
    const struct cmn_topology *t;
    const char *data_name, *cfg_name;
    struct cmn_cfg_file data, cfg;
    enum cmn_doctor_task task;
    int classes;   /* from the .data file, or for a detector from the last layer that finds boxes */
    int max_boxes; /* boxes of an image that the training takes; 0: any number */
    int channels;
    const char *list_name[2]; /* train, valid; NULL: there is none */
    struct cmn_doctor_line *line[2];
    int lines[2];
    char **label; /* names of a classifier's classes */
    int labels;
    struct cmn_doctor_sums sums;
    struct cmn_problems problems;
};

/* Collective, blocking. Reads the cfg and the .data file, which only rank 0 needs to have; ends the
 * job if one cannot be read. Finds task, classes and lists, and adds the problems in them. */
void cmn_doctor_files(struct cmn_doctor *d);

/* Local. Adds a problem that all ranks find; only rank 0 adds it, so that it counts once. */
#define cmn_doctor_add(d, ...) \
    ((d)->t->rank == 0 ? cmn_problem_add(&(d)->problems, __VA_ARGS__) : (void)0)

#endif
