/* What the doctor knows of a training, and its look at cfg, .data file and lists: numbers that
 * contradict each other, files that are not there. */
#ifndef CMN_DOCTOR_FILES_H
#define CMN_DOCTOR_FILES_H

#include "config/cfg_file.h"
#include "mpi/topology.h"
#include "tools/problems.h"

/* What the cfg's last layer is trained with. */
enum cmn_doctor_task { CMN_DOCTOR_IMAGES, CMN_DOCTOR_CLASSES, CMN_DOCTOR_BOXES };

/* A line of a list. */
struct cmn_doctor_line {
    const char *text;
    int line;   /* in the file */
    int list;   /* 0: train, 1: valid */
    int repeat; /* the text stands before, in either list */
};

/* Sums over all ranks, once cmn_doctor_images has returned; on rank 0 alone. */
struct cmn_doctor_sums {
    long files, readable;           /* different images */
    long long bytes, width, height; /* of decoded images, all added */
    long labels, boxes;             /* label files; boxes in them */
};

struct cmn_doctor {
    const struct cmn_topology *t;
    const char *data_name, *cfg_name;
    struct cmn_cfg_file data, cfg;
    enum cmn_doctor_task task;
    int classes;   /* of the .data file, or of the last layer */
    int max_boxes; /* of an image; 0: any number */
    int channels;
    const char *list_name[2]; /* NULL: there is none */
    struct cmn_doctor_line *line[2];
    int lines[2];
    char **label; /* classifier: `labels` of them */
    int labels;
    struct cmn_doctor_sums sums;
    struct cmn_problems problems;
};

/* Collective, blocking. Reads cfg and .data file, which rank 0 has; ends the job when one cannot be
 * read. Finds task, classes and lists, and what is wrong with them. */
void cmn_doctor_files(struct cmn_doctor *d);

/* Local. Adds a problem of files that all ranks know, once: on rank 0. */
#define cmn_doctor_add(d, ...) \
    ((d)->t->rank == 0 ? cmn_problem_add(&(d)->problems, __VA_ARGS__) : (void)0)

/* Collective, blocking. The lines of a text file that rank 0 reads, without those that are blank
 * unless `blank`; NULL with a reason when it cannot be read. Never freed. */
struct cmn_doctor_line *cmn_doctor_read_lines(const struct cmn_doctor *d, const char *name,
                                              int blank, int *n);

#endif
