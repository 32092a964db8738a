#include "base/debug.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

extern char **environ;

#define PREFIX "CMN_DEBUG_"

/* `words` are the allowed words, separated by ", ". It is NULL for a number from `low` to
 * `high`. */
static const struct variable {
    const char *name, *words;
    double low, high;
} table[] = {
    {"BUCKET_MB", NULL, 0.0001, 1024},
    {"CHECKPOINT_KEEP", NULL, 1, 1000},
    {"EXCHANGE", "pairwise, halving, ring", 0, 0},
    {"INTRA", "mpi", 0, 0},
    {"ONEDNN", "off", 0, 0},
    {"SHARE_GPUS", "1", 0, 0},
};

enum { VARIABLES = sizeof table / sizeof table[0] };

static const struct variable *find(const char *name)
{
    for (int i = 0; i < VARIABLES; i++) {
        if (!strcmp(table[i].name, name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* Returns NULL if the variable is not set. An empty value counts as unset, because a shell can
 * clear a variable for one command only by NAME=. */
static const char *value_of(const char *name)
{
    char full[64];
    const char *value;

    snprintf(full, sizeof full, PREFIX "%s", name);
    value = getenv(full);
    return value && value[0] ? value : NULL;
}

static int word_index(const char *words, const char *value)
{
    size_t length = strlen(value);
    int index = 1;

    for (const char *word = words; *word; index++) {
        size_t n = strcspn(word, ",");
        if (n == length && !strncmp(word, value, n)) {
            return index;
        }
        word += n + strspn(word + n, ", ");
    }
    return 0;
}

/* Returns the number, or 0 if the table does not allow `value`. */
static double number(const struct variable *v, const char *value)
{
    char *end = NULL;
    double x = strtod(value, &end);

    return end != value && !*end && x >= v->low && x <= v->high ? x : 0;
}

int cmn_debug_word(const char *name)
{
    const char *value = value_of(name);

    return value ? word_index(find(name)->words, value) : 0;
}

double cmn_debug_number(const char *name)
{
    const char *value = value_of(name);

    return value ? number(find(name), value) : 0;
}

static int check(const char *name, const char *value)
{
    const struct variable *v = find(name);

    if (!v) {
        return cmn_fail("environment: unknown variable " PREFIX "%s: unset it; "
                        "docs/internals/debug.md lists the variables",
                        name);
    }
    if (v->words && !word_index(v->words, value)) {
        return cmn_fail("environment: " PREFIX "%s=%s: the value must be one of: %s", name, value,
                        v->words);
    }
    if (!v->words && !(number(v, value) > 0)) {
        return cmn_fail("environment: " PREFIX "%s=%s: the value must be a number, %g to %g", name,
                        value, v->low, v->high);
    }
    return 0;
}

int cmn_debug_check(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        char name[64];
        const char *value = strchr(*entry, '=');
        size_t prefix = sizeof PREFIX - 1;
        if (strncmp(*entry, PREFIX, prefix) || !value || !value[1]) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(value - *entry - (long)prefix), *entry + prefix);
        if (check(name, value + 1)) {
            return -1;
        }
    }
    return 0;
}

int cmn_debug_print(char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < VARIABLES && used < bytes; i++) {
        const char *value = value_of(table[i].name);
        used += (size_t)snprintf(text + used, bytes - used, PREFIX "%s = %s\n", table[i].name,
                                 value ? value : "unset");
    }
    return used < bytes ? 0 : cmn_fail("the variables " PREFIX "… are too long to be compared");
}
