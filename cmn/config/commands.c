#include "config/commands.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define ONE "one process does it: run it without -cmn and mpiexec"
#define LISTED "its list is written into the program: use detector map, valid or recall"
#define TRAINS CMN_TRAINS, CMN_NO_ANSWER, CMN_IN_PJREDDIE
#define REFUSED CMN_REFUSED, CMN_NO_ANSWER, CMN_IN_BOTH
#define BOTH CMN_IN_BOTH
#define PJREDDIE CMN_IN_PJREDDIE

static struct cmn_command table[] = {
    {"classifier", "train", CMN_TRAINS, CMN_CLASSES, BOTH, "trains a classifier"},
    {"classifier", "valid", CMN_EVALUATES, CMN_CLASSES, BOTH, "counts right answers"},
    {"classifier", "*", REFUSED, ONE},
    {"detector", "train", CMN_TRAINS, CMN_BOXES, BOTH, "trains a detector with [yolo] or [region]"},
    {"detector", "map", CMN_EVALUATES, CMN_BOXES, BOTH, "mean average precision"},
    {"detector", "valid", CMN_EVALUATES, CMN_BOXES, BOTH, "writes boxes for VOC, COCO or ImageNet"},
    {"detector", "recall", CMN_EVALUATES, CMN_BOXES, BOTH, "counts true boxes that are found"},
    {"detector", "*", REFUSED, ONE},
    {"yolo", "train", CMN_TRAINS, CMN_BOXES, PJREDDIE,
     "trains a detector with [detection]; -data FILE names its list"},
    {"yolo", "valid", REFUSED, LISTED},
    {"yolo", "recall", REFUSED, LISTED},
    {"yolo", "*", REFUSED, ONE},
    {"coco", "train", CMN_TRAINS, CMN_BOXES, PJREDDIE,
     "trains a detector with [detection]; -data FILE names its list"},
    {"coco", "valid", REFUSED, LISTED},
    {"coco", "recall", REFUSED, LISTED},
    {"coco", "*", REFUSED, ONE},
    {"regressor", "train", TRAINS, "trains a network that predicts numbers"},
    {"regressor", "*", REFUSED, ONE},
    {"segmenter", "train", TRAINS, "trains a network that gives each pixel its classes"},
    {"segmenter", "*", REFUSED, ONE},
    {"isegmenter", "train", TRAINS, "trains a network that tells objects apart pixel by pixel"},
    {"isegmenter", "*", REFUSED, ONE},
    {"tag", "train", TRAINS, "trains a network that gives an image its tags; -data FILE"},
    {"tag", "*", REFUSED, ONE},
    {"cifar", "train", TRAINS, "trains a classifier on CIFAR-10's binary files; -data FILE"},
    {"cifar", "distill", TRAINS, "the same, towards results/ensemble.csv; -data FILE"},
    {"cifar", "*", REFUSED, ONE},
    {"rnn", "train", REFUSED,
     "-cmn trains no layer that keeps a state between steps: train it with one process, without "
     "-cmn"},
    {"rnn", "*", REFUSED, ONE},
    {"super", "train", TRAINS, "trains a network that enlarges images; -data FILE"},
    {"super", "*", REFUSED, ONE},
    {"go", "train", REFUSED,
     "its moves are drawn anew in each process, and no list says which rank takes which: train it "
     "with one process, without -cmn"},
    {"go", "*", REFUSED, ONE},
    {"lsd", "*", REFUSED,
     "it trains several networks against each other, and -cmn knows one: use one process, without "
     "-cmn"},
    {"art", "*", REFUSED, ONE},
    {"nightmare", "*", REFUSED, ONE},
    {"detect", "*", REFUSED, ONE},
    {"classify", "*", REFUSED, ONE},
    {"visualize", "*", REFUSED, ONE},
    {"speed", "*", REFUSED, ONE},
    {"average", "*", REFUSED, ONE},
};

static const struct cmn_command unknown = {
    "this", "command", REFUSED,
    "`darknet cmn list` names those that it does, and any other would run as independent copies: "
    "run it without -cmn and mpiexec"};

enum { COMMANDS = sizeof table / sizeof table[0] };

void cmn_commands_in_both(const char *whose)
{
    static char note[160];

    snprintf(note, sizeof note,
             "%s Darknet has no hooks for it: use one process, without -cmn; `darknet cmn list` "
             "names the commands that have",
             whose);
    for (int i = 0; i < COMMANDS; i++) {
        if (table[i].hooked != CMN_IN_BOTH) {
            table[i].does = CMN_REFUSED;
            table[i].answer = CMN_NO_ANSWER;
            table[i].note = note;
        }
    }
}

const struct cmn_command *cmn_command_at(int i)
{
    return i < COMMANDS ? &table[i] : NULL;
}

static int is_verb(const char *driver, const char *word)
{
    int found = 0;

    for (int i = 0; i < COMMANDS; i++) {
        found |= !strcmp(table[i].driver, driver) && !strcmp(table[i].verb, word);
    }
    return found;
}

void cmn_command_verb_first(int argc, char **argv)
{
    char *verb;

    for (int i = 3; i < argc && argv[2][0] == '-'; i++) {
        if (is_verb(argv[1], argv[i])) {
            verb = argv[i];
            memmove(argv + 3, argv + 2, (size_t)(i - 2) * sizeof *argv);
            argv[2] = verb;
        }
    }
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

/* Returns the commands with this verb, "classifier train, detector train, …", for people who
 * forgot the driver; NULL if there is none. */
static const char *with_verb(const char *verb)
{
    static _Thread_local char names[256];
    size_t n = 0;

    for (int i = 0; i < COMMANDS; i++) {
        const struct cmn_command *c = &table[i];
        if (c->does != CMN_REFUSED && !strcmp(c->verb, verb) && n < sizeof names) {
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s %s", n ? ", " : "", c->driver,
                                  verb);
        }
    }
    return n ? names : NULL;
}

const char *cmn_command_nearest(int argc, char **argv)
{
    static _Thread_local char name[64];
    const char *word[COMMANDS], *nearest;
    int known = 0, n = 0;

    for (int i = 0; i < COMMANDS && argc > 1; i++) {
        known |= !strcmp(table[i].driver, argv[1]);
    }
    for (int i = 0; i < COMMANDS && argc > 1 + known; i++) {
        const struct cmn_command *c = &table[i];
        if (c->does != CMN_REFUSED && (!known || !strcmp(c->driver, argv[1]))) {
            word[n++] = known ? c->verb : c->driver;
        }
    }
    nearest = n ? cmn_nearest(argv[1 + known], word, n) : NULL;
    if (!nearest) {
        return argc > 1 && !known ? with_verb(argv[1]) : NULL;
    }
    snprintf(name, sizeof name, "%s%s%s", known ? argv[1] : "", known ? " " : "", nearest);
    return name;
}

const char *cmn_command_name(const struct cmn_command *c)
{
    static _Thread_local char name[64];
    int any = !strcmp(c->verb, "*");

    snprintf(name, sizeof name, "%s%s%s", c->driver, any ? "" : " ", any ? "" : c->verb);
    return name;
}
