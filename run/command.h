/* What the command is, what it says about checkpoints, and which of its checkpoints exist. All
 * local. */
#ifndef CMN_RUN_COMMAND_H
#define CMN_RUN_COMMAND_H

#include <limits.h>
#include <time.h>

struct cmn_command {
    char **word;           /* as given, NULL behind the last; the caller's */
    char **without_clear;  /* the same without -clear */
    int alone;             /* it is Darknet, and its processes would not work together */
    int trains;            /* `train` is among its words */
    int clear;             /* it starts over with -clear */
    long checkpoint;       /* iterations between checkpoints, 0: none */
    int global;            /* cmn_batch=global, the default */
    char cfg[PATH_MAX];    /* the cfg among its words, or "": none can be read here */
    char backup[PATH_MAX]; /* the folder of its checkpoints as the .data file says, or "" */
};

/* Reads words, cfg and .data file. */
void cmn_command_read(struct cmn_command *c, char **word);

/* Whether the word is a program here: a file that may be executed, or one of PATH. */
int cmn_command_is_program(const char *word);

/* The checkpoints of this training, where their folder can be seen from here. */
struct cmn_checkpoints {
    long iteration;          /* of the newest by its name, or -1 */
    struct timespec changed; /* the latest change of any of them */
};
struct cmn_checkpoints cmn_command_checkpoints(const struct cmn_command *c);

#endif
