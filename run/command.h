/* What the command that is to be run says about checkpoints. All local. */
#ifndef CMN_RUN_COMMAND_H
#define CMN_RUN_COMMAND_H

#include <limits.h>
#include <time.h>

struct cmn_command {
    char **word;           /* as given, NULL behind the last */
    char **going_on;       /* the same without -clear */
    int cmn;               /* it trains with -cmn */
    int clear;             /* it starts over with -clear */
    long checkpoint;       /* iterations between checkpoints, 0: none */
    int global;            /* cmn_batch=global */
    char cfg[PATH_MAX];    /* the cfg among its words, or empty: none can be read here */
    char backup[PATH_MAX]; /* the folder of its checkpoints as the .data file says, or empty */
};

/* Reads words, cfg and .data file. `word` stays the caller's. 0, or -1 after saying why. */
int cmn_command_read(struct cmn_command *c, char **word);

/* The checkpoints of this training, as far as their folder can be seen from here. */
struct cmn_seen {
    long iteration;       /* of the newest by its name, or -1 */
    struct timespec time; /* the latest change of any of them */
};
struct cmn_seen cmn_command_look(const struct cmn_command *c);

void cmn_command_free(struct cmn_command *c);

#endif
