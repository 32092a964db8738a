#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

static enum cmn_command command_of(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "classifier")) {
        if (!strcmp(argv[2], "train")) {
            return CMN_CLASSIFIER_TRAIN;
        }
        if (!strcmp(argv[2], "valid")) {
            return CMN_CLASSIFIER_VALID;
        }
    }
    return CMN_OTHER;
}

int cmn_arguments_take(int *argc, char **argv, struct cmn_options *options,
                       struct cmn_arguments *found)
{
    int kept = 0, result = 0;

    memset(found, 0, sizeof *found);
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "-cmn")) {
            found->on = 1;
        } else if (strncmp(argv[i], "-cmn_", 5)) {
            argv[kept++] = argv[i];
        } else if (i + 1 == *argc) {
            found->key = 1;
            result = result ? result : cmn_fail("command line: %s: the value is missing", argv[i]);
        } else {
            found->key = 1;
            result = result ? result : cmn_options_set(options, argv[i] + 1, argv[i + 1], 1);
            i++;
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    found->command = command_of(kept, argv);
    return result;
}

void cmn_arguments_warn_of_copies(void)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *size = getenv(names[i][0]);
        const char *rank = getenv(names[i][1]);
        if (size && rank && atoi(size) > 1) {
            if (atoi(rank) == 0) {
                fprintf(stderr, "cmn: warning: %s processes were started without -cmn: they run as "
                        "%s independent copies; add -cmn to train together\n", size, size);
            }
            return;
        }
    }
}
