/* The command line, and the keys of a cfg. */
#include <string.h>

#include "fuzz.h"

#include "config/arguments.h"
#include "base/log.h"
#include "config/options.h"

/* Of Darknet's src/utils.c. */
int find_arg(int argc, char *argv[], char *arg);
int find_int_arg(int argc, char **argv, char *arg, int def);
float find_float_arg(int argc, char **argv, char *arg, float def);
char *find_char_arg(int argc, char **argv, char *arg, char *def);

enum { MOST = 64 };

/* Words end at a newline. The first byte says whether they are a command line, or key and value
 * in turn, as in a cfg. */
void fuzz_arguments(const uint8_t *data, size_t size)
{
    static struct cmn_options options, again;
    struct cmn_arguments found;
    char text[4097], *argv[MOST + 1], printed[65536];
    int argc = 0;

    if (size < 1) {
        return;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    for (char *word = text; word && argc < MOST; argc++) {
        char *end = strchr(word, '\n');
        argv[argc] = word;
        if (end) {
            *end++ = '\0';
        }
        word = end;
    }
    argv[argc] = NULL;
    cmn_options_default(&options);
    if (data[0] & 1) {
        if (cmn_arguments_take(&argc, argv, &options, &found) || !found.on) {
            cmn_reason();
            return;
        }
        find_arg(argc, argv, (char[]){"-clear"});
        find_int_arg(argc, argv, (char[]){"-i"}, 0);
        find_float_arg(argc, argv, (char[]){"-thresh"}, .5F);
        find_char_arg(argc, argv, (char[]){"-gpus"}, NULL);
    }
    for (int i = 0; i + 1 < argc && argv[i] && argv[i + 1]; i += 2) {
        (void)!cmn_options_set(&options, argv[i], argv[i + 1], 0);
        cmn_reason();
    }
    again = options;
    (void)!cmn_options_print(&again, printed, sizeof printed);
}
