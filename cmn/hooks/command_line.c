/* The call of cmn.h from Darknet's help, to which -cmn adds its own. */
#include "cmn.h"

#include <stdio.h>
#include <string.h>

#include "config/commands.h"
#include "config/options.h"
#include "hooks/job.h"

/* Prints all keys by group, in lines of at most 100 columns. */
static void print_keys(void)
{
    enum { LEFT = 22, RIGHT = 100 };
    struct cmn_option_row row;
    const char *group = "";
    int column = 0;

    for (int i = 0; i < cmn_options_count(); i++) {
        int width;
        cmn_options_row(i, &row);
        width = (int)strlen(row.key) + 1;
        if (strcmp(row.group, group)) {
            column = printf("%s  %-*s", column ? "\n" : "", LEFT - 2, row.group) - (column != 0);
            group = row.group;
        } else if (column + width > RIGHT) {
            column = printf("\n%*s", LEFT, "") - 1;
        }
        column += printf(" %s", row.key);
    }
    putchar('\n');
}

#define DOCTOR "  darknet cmn doctor DATA CFG    looks at images, labels and cfg beforehand\n"

static void print_training(const struct cmn_command *c)
{
    printf("\nWith -cmn many processes train one network:\n"
           "  cmn-run -n 4 -- darknet %s ... -cmn\n",
           cmn_command_name(c));
    if (c->answer != CMN_NO_ANSWER) {
        printf(DOCTOR);
    }
    printf(
        "Keys, behind it as -KEY VALUE or in the cfg's [net] as KEY=VALUE (-h -cmn says what each "
        "does):\n");
    print_keys();
    printf("Documents: docs/README.md, man darknet\n");
}

void cmn_print_help(const char *driver, const char *verb)
{
    char *words[] = {"darknet", (char *)driver, (char *)verb, NULL};
    const struct cmn_command *c = cmn_command_find(verb[0] ? 3 : driver[0] ? 2 : 1, words);

    if (cmn_job.command) {
        return; /* -cmn was given, so help() has printed the keys */
    }
    if (!driver[0]) {
        printf("Training on many processes, with -cmn:\n"
               "  cmn-run -n 4 -- darknet detector train DATA CFG -cmn\n" DOCTOR
               "  darknet cmn list               names the commands that take -cmn, and its keys\n"
               "Documents: docs/README.md, man darknet\n\nCommands:\n");
    } else if (!verb[0]) {
        printf("\nWith -cmn many processes do what one of these commands says: `darknet cmn list` "
               "names those, and the keys.\nDocuments: docs/README.md, man darknet\n");
    } else if (c->does == CMN_TRAINS) {
        print_training(c);
    } else if (c->does == CMN_EVALUATES) {
        printf("\nWith -cmn many processes divide the list, and the result is that of one:\n"
               "  cmn-run -n 4 -- darknet %s ... -cmn\n"
               "Documents: docs/use/evaluation.md, man darknet\n",
               cmn_command_name(c));
    }
}
