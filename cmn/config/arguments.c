#include "config/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "base/log.h"

/* The options that people know from AlexeyAB's Darknet, and what to use instead. */
static const struct {
    const char *option;
    int values; /* words that follow the option */
    const char *note;
    int harmless; /* it is dropped without a message, since nothing is lost */
} elsewhere[] = {
    {"-map", 0,
     "with -cmn, cmn_validate computes the mAP, after each epoch where the cfg says nothing", 0},
    {"-mAP_epochs", 1, "with -cmn, cmn_validate sets the epochs between two validations", 0},
    {"-dont_show", 0, "no window is opened", 1},
    {"-mjpeg_port", 1, "with -cmn, cmn_chart=FILE.png draws loss and mAP", 0},
    {"-chart", 1, "with -cmn, cmn_chart=FILE.png draws loss and mAP", 0},
};

enum { ELSEWHERE = sizeof elsewhere / sizeof elsewhere[0] };

static int known = ELSEWHERE;

void cmn_arguments_none_elsewhere(void)
{
    known = 0;
}

const char *cmn_arguments_elsewhere(int i, const char **note)
{
    *note = i < known ? elsewhere[i].note : NULL;
    return i < known ? elsewhere[i].option : NULL;
}

/* Returns how many words at argv[i] are such an option with its value, or 0. Sets *note to NULL if
 * nothing is lost without the option. */
static int words_of_elsewhere(char **argv, int i, const char **note)
{
    for (int k = 0; k < known; k++) {
        if (!strcmp(argv[i], elsewhere[k].option)) {
            *note = elsewhere[k].harmless ? NULL : elsewhere[k].note;
            return 1 + (elsewhere[k].values && argv[i + 1]);
        }
    }
    return 0;
}

void cmn_arguments_drop_elsewhere(int *argc, char **argv)
{
    const char *note = NULL;
    int kept = 0;

    for (int i = 0; i < *argc; i++) {
        int words = words_of_elsewhere(argv, i, &note);
        if (words && note) {
            cmn_say("%s of AlexeyAB's Darknet has no effect here: %s", argv[i], note);
        }
        if (words) {
            i += words - 1;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    *argc = kept;
}

void cmn_arguments_drop_gpus(int *argc, char **argv)
{
    for (int i = 0; i + 1 < *argc; i++) {
        if (!strcmp(argv[i], "-gpus")) {
            cmn_say("-gpus %s has no effect: each rank of a node takes the GPU of its own number",
                    argv[i + 1]);
            memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof *argv);
            *argc -= 2;
        }
    }
}

/* Options of Darknet that a number follows. It takes whatever stands there, and crashes where its
 * parser has removed that, as in "-thresh -clear". */
static int takes_number(const char *option)
{
    static const char *const numeric[] = {"-thresh",
                                          "-hier",
                                          "-iou_thresh",
                                          "-points",
                                          "-i",
                                          "-c",
                                          "-s",
                                          "-t",
                                          "-avg",
                                          "-mAP_epochs",
                                          "-mjpeg_port",
                                          "-json_port",
                                          "-avgframes",
                                          "-time_limit_sec",
                                          "-num_of_clusters",
                                          "-width",
                                          "-height"};
    size_t i = 0;

    while (i < sizeof numeric / sizeof numeric[0] && strcmp(numeric[i], option) != 0) {
        i++;
    }
    return i < sizeof numeric / sizeof numeric[0];
}

static int is_number(const char *text)
{
    char *end;

    (void)strtod(text, &end);
    return end != text && !*end;
}

int cmn_arguments_take(int *argc, char **argv, struct cmn_options *options,
                       struct cmn_arguments *found)
{
    int kept = 0, result = 0, with_cmn = 0;

    memset(found, 0, sizeof *found);
    for (int i = 0; i < *argc; i++) {
        with_cmn |= !strcmp(argv[i], "-cmn");
    }
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "-cmn")) {
            found->on = 1;
        } else if (with_cmn && !strcmp(argv[i], "--save-weights") && i + 1 < *argc) {
            found->save_weights = argv[++i]; /* as scripts of DarkMark write it */
        } else if (strncmp(argv[i], "-cmn_", 5)) {
            argv[kept++] = argv[i];
        } else if (strchr(argv[i], '=')) {
            found->key = 1;
            result = result ? result
                            : cmn_fail("command line: %s: a blank stands between key and value: "
                                       "%.*s %s",
                                       argv[i], (int)strcspn(argv[i], "="), argv[i],
                                       strchr(argv[i], '=') + 1);
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
    for (int i = 0; i < kept && found->on && !result; i++) {
        if (takes_number(argv[i]) && (i + 1 == kept || !is_number(argv[i + 1]))) {
            result = cmn_fail("command line: %s: a number must follow it", argv[i]);
        }
    }
    for (int i = 0; i + 1 < kept && found->on && !result; i++) {
        if (!strcmp(argv[i], "-gpus") && strchr(argv[i + 1], ',')) {
            result = cmn_fail("command line: -gpus %s: with -cmn each rank trains on one device; "
                              "start a rank for each instead",
                              argv[i + 1]);
        }
    }
    if (found->on) {
        cmn_command_verb_first(kept, argv);
    }
    for (int i = 0; i < kept; i++) {
        found->clear |= !strcmp(argv[i], "-clear");
    }
    found->command = cmn_command_find(kept, argv);
    return result;
}

int cmn_arguments_without_pmi(int least)
{
    int started = cmn_launcher_size();

    if (!cmn_launcher_is_srun() || cmn_launcher_has_pmi() || started < least) {
        return 0;
    }
    if (started == 1) {
        return cmn_fail("srun started this process without PMIx, which Open MPI needs: use "
                        "`srun --mpi=pmix`");
    }
    return cmn_fail("srun started %d processes without PMIx, so each of them would be alone: use "
                    "`srun --mpi=pmix` (to train %d networks of one rank each: `srun -n 1 "
                    "--mpi=pmix` for each)",
                    started, started);
}

int cmn_arguments_alone(int size)
{
    int started = cmn_launcher_size();

    if (size > 1 || started == 1) {
        return 0;
    }
    if (cmn_launcher_is_srun()) {
        return cmn_fail("srun started %d processes, but each of them is alone: its --mpi is not "
                        "what this MPI needs, which is pmix for Open MPI; `srun --mpi=list` names "
                        "what there is; `darknet cmn check` says more",
                        started);
    }
    return cmn_fail(
        "the launcher started %d processes, but each of them is alone: mpiexec is not of "
        "the MPI that this program was linked with; `darknet cmn check` says more",
        started);
}

void cmn_arguments_warn_of_copies(void)
{
    int size = cmn_launcher_size();

    if (cmn_launcher_rank() == 0) {
        fprintf(stderr,
                "cmn: warning: %d processes were started without -cmn: they run as %d "
                "independent copies; add -cmn to train together\n",
                size, size);
    }
}
