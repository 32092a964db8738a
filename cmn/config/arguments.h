/* The command line, as far as it is ours. All local. */
#ifndef CMN_ARGUMENTS_H
#define CMN_ARGUMENTS_H

#include "config/options.h"
#include "config/commands.h"

struct cmn_arguments {
    int on;    /* -cmn was there */
    int key;   /* a -cmn_key was there */
    int clear; /* Darknet's -clear was there, and still is */
    const struct cmn_command *command;
};

/* Sets the keys given as -cmn_key VALUE, and takes them and -cmn out of the arguments.
 * 0, or -1 with the reason of the first wrong key; *found is filled in any case. */
int cmn_arguments_take(int *argc, char **argv, struct cmn_options *options,
                       struct cmn_arguments *found);

/* How many processes the launcher says it started; 1 without one. */
int cmn_arguments_launch_size(void);

/* 0, or -1 with a reason when the launcher started several processes and yet MPI knows of one only. */
int cmn_arguments_alone(int size);

/* This process's number as its launcher counts; -1 when there is no launcher of several. */
int cmn_arguments_launch_rank(void);

/* Warns once a job when a launcher started several processes. For a run without -cmn: each of them
 * trains a network of its own, and they overwrite each other's weights. */
void cmn_arguments_warn_of_copies(void);

#endif
