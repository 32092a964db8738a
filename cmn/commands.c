#include "commands.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ONE "one process does it: leave -cmn and mpiexec away"

static const struct cmn_command table[] = {
    {"classifier", "train", CMN_TRAINS, CMN_CLASSES, "trains a classifier"},
    {"classifier", "valid", CMN_EVALUATES, CMN_CLASSES, "counts right answers"},
    {"classifier", "*", CMN_REFUSED, CMN_NO_ANSWER, ONE},
    {"detector", "train", CMN_TRAINS, CMN_BOXES, "trains a detector"},
    {"detector", "map", CMN_EVALUATES, CMN_BOXES, "mean average precision"},
    {"detector", "*", CMN_REFUSED, CMN_NO_ANSWER, ONE},
    {"detect", "*", CMN_REFUSED, CMN_NO_ANSWER, ONE},
    {"classify", "*", CMN_REFUSED, CMN_NO_ANSWER, ONE},
};

static const struct cmn_command unknown = {
    "this", "command", CMN_REFUSED, CMN_NO_ANSWER,
    "it would run as independent copies: leave -cmn and mpiexec away"};

enum { COMMANDS = sizeof table / sizeof table[0] };

const struct cmn_command *cmn_command_at(int i)
{
    return i < COMMANDS ? &table[i] : NULL;
}

const struct cmn_command *cmn_command_find(int argc, char **argv)
{
    for (int i = 0; i < COMMANDS && argc > 1; i++) {
        const struct cmn_command *c = &table[i];
        if (!strcmp(c->driver, argv[1]) &&
            (!strcmp(c->verb, "*") || (argc > 2 && !strcmp(c->verb, argv[2])))) {
            return c;
        }
    }
    return &unknown;
}

const char *cmn_command_name(const struct cmn_command *c)
{
    static _Thread_local char name[64];
    int any = !strcmp(c->verb, "*");

    snprintf(name, sizeof name, "%s%s%s", c->driver, any ? "" : " ", any ? "" : c->verb);
    return name;
}
