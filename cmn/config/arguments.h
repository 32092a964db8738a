/* The module's part of the command line. Local. */
#ifndef CMN_ARGUMENTS_H
#define CMN_ARGUMENTS_H

#include "config/options.h"
#include "config/commands.h"

struct cmn_arguments {
    int on;    /* -cmn was given */
    int key;   /* a -cmn_KEY was given */
    int clear; /* Darknet's -clear was given; it stays among the arguments */
    const struct cmn_command *command;
};

/* Sets the keys given as -cmn_KEY VALUE, and removes them and -cmn from the arguments. 0, or -1
 * with the reason of the first wrong key; *found is filled in both cases. */
int cmn_arguments_take(int *argc, char **argv, struct cmn_options *options,
                       struct cmn_arguments *found);

/* Removes options that AlexeyAB's Darknet has and this one has not, and says what there is
 * instead. */
void cmn_arguments_drop_elsewhere(int *argc, char **argv);

/* Before all other calls, where Darknet is AlexeyAB's: there are no such options. */
void cmn_arguments_none_elsewhere(void);

/* Option i of those, and what there is instead; NULL behind the last. */
const char *cmn_arguments_elsewhere(int i, const char **note);

/* 0, or -1 with a reason when srun started this process in a step of `least` or more without any
 * PMI. Without it an MPI that knows no other way to its world makes one of each process, or fails;
 * so this is asked before MPI starts. */
int cmn_arguments_without_pmi(int least);

/* 0, or -1 with a reason when the launcher started several processes but MPI's world has one. */
int cmn_arguments_alone(int size);

/* Warns once a job when a launcher started several processes without -cmn: each trains its own
 * network, and they overwrite each other's weights. */
void cmn_arguments_warn_of_copies(void);

#endif
