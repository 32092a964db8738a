/* cmocka, with the headers that it needs before it. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

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

#endif
