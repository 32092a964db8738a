/* cmocka, with the headers that it needs before it. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Fails unless `part` stands in `text`; says both. */
static inline void check_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

/* No file of that name and more: nothing that was written aside is left. */
static inline void check_alone(const char *name)
{
    char pattern[4200];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s.*", name);
    if (!glob(pattern, 0, NULL, &found)) {
        fail_msg("%s is left", found.gl_pathv[0]);
    }
    globfree(&found);
}

#endif
