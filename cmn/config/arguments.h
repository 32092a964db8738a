/* arguments: the part of the command line that belongs to darknet-cmn. Local. */
#ifndef CMN_ARGUMENTS_H
#define CMN_ARGUMENTS_H

#include "config/options.h"
#include "config/commands.h"

struct cmn_arguments {
    int on;    /* -cmn was given */
    int key;   /* a -cmn_KEY was given */
    int clear; /* Darknet's -clear was given; it stays among the arguments */
    const char
        *save_weights; /* N of --save-weights N: as saveweights=N of the .data file; or NULL */
    const struct cmn_command *command;
};

/* Sets the keys that are given as -cmn_KEY VALUE, and removes them and -cmn from the
 * arguments, and with -cmn --save-weights.
 * Returns 0, or -1 with the reason of the first error. Fills *found in both cases. */
int cmn_arguments_take(int *argc, char **argv, struct cmn_options *options,
                       struct cmn_arguments *found);

/* Removes the options that AlexeyAB's Darknet has and this one lacks, and says what to use
 * instead. */
void cmn_arguments_drop_elsewhere(int *argc, char **argv);

/* Removes `-gpus N`, which would give all ranks of a node the same GPU, and says so. */
void cmn_arguments_drop_gpus(int *argc, char **argv);

/* Declares that this Darknet is AlexeyAB's, so that there are no such options. Must be called
 * before all other functions. */
void cmn_arguments_none_elsewhere(void);

/* Returns option i of those, and sets *note to what to use instead. Returns NULL after the last
 * option. */
const char *cmn_arguments_elsewhere(int i, const char **note);

/* Returns 0, or -1 with a reason if srun started this process without any PMI, in a step of `least`
 * processes or more. Without PMI, an MPI that finds no other way to its world makes a world of each
 * process, or fails; so this is asked before MPI starts. */
int cmn_arguments_without_pmi(int least);

/* Returns 0, or -1 with a reason if the launcher started several processes but MPI's world has only
 * one. `size` is the size of MPI's world. */
int cmn_arguments_alone(int size);

/* Warns once a job if a launcher started several processes without -cmn: each trains its own
 * network, and they overwrite each other's weights. */
void cmn_arguments_warn_of_copies(void);

#endif
