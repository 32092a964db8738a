/* Finds out what the command is, and what it says about checkpoints. All local. */
#ifndef CMN_RUN_COMMAND_H
#define CMN_RUN_COMMAND_H

struct cmn_command {
    char **word;     /* the words as given, NULL behind the last; the caller's */
    int alone;       /* it is Darknet, and its processes would not work together */
    int is_darknet;  /* its first word names Darknet */
    int trains;      /* `train` is among its words */
    int clear;       /* it starts over with -clear */
    long checkpoint; /* iterations between checkpoints, 0: none */
    int global;      /* cmn_batch=global, the default */
};

/* Reads words and cfg. */
void cmn_command_read(struct cmn_command *c, char **word);

/* Returns whether the word names Darknet, in whatever folder. */
int cmn_command_is_darknet(const char *word);

/* Returns whether the word is a program here: a file that may be executed, or one of PATH. */
int cmn_command_is_program(const char *word);

#endif
