#include "command.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Darknet takes all blanks out of a cfg's lines, and a byte order mark before the first one. */
static void strip(char *line)
{
    char *to = line;

    for (line += strncmp(line, "\xef\xbb\xbf", 3) ? 0 : 3; *line; line++) {
        if (!isspace((unsigned char)*line)) {
            *to++ = *line;
        }
    }
    *to = '\0';
}

static FILE *open_plain(const char *name)
{
    struct stat st;

    return !stat(name, &st) && S_ISREG(st.st_mode) ? fopen(name, "r") : NULL;
}

static void take_key(struct cmn_command *c, const char *key, const char *value)
{
    if (!strcmp(key, "cmn_checkpoint")) {
        c->checkpoint = atol(value);
    } else if (!strcmp(key, "cmn_batch")) {
        c->global = !strcmp(value, "global");
    }
}

/* Reads the keys of [net], if the file begins with that section, and returns whether it does. Of
 * equal keys Darknet takes the first. */
static int read_cfg(struct cmn_command *c, const char *name)
{
    char *line = NULL;
    size_t bytes = 0;
    FILE *file = open_plain(name);
    int sections = 0, found = 0, had_checkpoint = 0, had_batch = 0;

    while (file && sections < 2 && getline(&line, &bytes, file) >= 0) {
        strip(line);
        char *equals = strchr(line, '=');
        if (!line[0] || line[0] == '#' || line[0] == ';') {
            continue;
        }
        if (line[0] == '[') {
            /* A comment may stand behind it. */
            sections =
                strncmp(line, "[net]", 5) && strncmp(line, "[network]", 9) ? 2 : sections + 1;
        } else if (!sections) {
            break;
        } else if (equals) {
            *equals = '\0';
            int *had = !strcmp(line, "cmn_checkpoint") ? &had_checkpoint : &had_batch;
            if ((had == &had_checkpoint || !strcmp(line, "cmn_batch")) && !(*had)++) {
                take_key(c, line, equals + 1);
            }
        }
        found |= sections == 1;
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return found;
}

static int is_executable(const char *file)
{
    struct stat st;

    return !stat(file, &st) && S_ISREG(st.st_mode) && !access(file, X_OK);
}

int cmn_command_is_program(const char *word)
{
    const char *path = getenv("PATH");
    char *rest = strdupa(path ? path : ""), *folder, file[PATH_MAX];

    if (strchr(word, '/')) {
        return is_executable(word);
    }
    while ((folder = strsep(&rest, ":"))) {
        snprintf(file, sizeof file, "%s/%s", folder[0] ? folder : ".", word);
        if (is_executable(file)) {
            return 1;
        }
    }
    return 0;
}

/* Returns whether several processes with this word behind Darknet's name do not harm each other. */
static int is_harmless(const char *word)
{
    return !strcmp(word, "cmn") || !strcmp(word, "help") || !strcmp(word, "--version") ||
           !strcmp(word, "--help") || !strcmp(word, "-h");
}

int cmn_command_is_darknet(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;

    return !strcmp(name, "darknet") || !strcmp(name, "darknet-gpu");
}

/* Returns whether the command runs Darknet, perhaps behind another program's name, without -cmn and
 * not as `darknet cmn TOOL` or `darknet help`. */
static int is_alone(char *const *word)
{
    int alone = 0;

    for (int i = 0; word[i]; i++) {
        if (!strcmp(word[i], "-cmn")) {
            return 0;
        }
        if (cmn_command_is_darknet(word[i])) {
            alone = !word[i + 1] || !is_harmless(word[i + 1]);
        }
    }
    return alone;
}

void cmn_command_read(struct cmn_command *c, char **word)
{
    int n = 0;

    memset(c, 0, sizeof *c);
    c->global = 1;
    c->word = word;
    c->alone = is_alone(word);
    c->is_darknet = cmn_command_is_darknet(word[0]);
    while (word[n]) {
        n++;
    }
    /* The first word is the program, which is a file, too, but no cfg. */
    for (int i = 1; i < n && !read_cfg(c, word[i]); i++) {
    }
    for (int i = 0; i < n; i++) {
        c->clear |= !strcmp(word[i], "-clear");
        c->trains |= !strcmp(word[i], "train");
        if (!strncmp(word[i], "-cmn_", 5) && word[i + 1]) {
            take_key(c, word[i] + 1, word[i + 1]);
            i++;
        }
    }
}
