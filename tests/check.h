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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fatal.h"
#include "base/log.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* TEST(name) { … } is a test, and TESTS(before, after) at the file's end the program that runs its
 * tests in their order, each between these two functions. */
static struct CMUnitTest check_tests[64];
static size_t check_count;
static void (*check_before)(void), (*check_after)(void);

/* The constructors have an order of their own, which they lose with -flto otherwise. */
#define IS_A_TEST(test, function)                                                            \
    static void function(void **check_state);                                                \
    static __attribute__((constructor(1000 + __COUNTER__))) void test##_is(void)             \
    {                                                                                        \
        if (check_count == COUNT(check_tests)) {                                             \
            abort();                                                                         \
        }                                                                                    \
        check_tests[check_count++] = (struct CMUnitTest){#test, function, NULL, NULL, NULL}; \
    }
#define TEST(test)        \
    IS_A_TEST(test, test) \
    static void test(void **check_state __attribute__((unused)))
#define TESTS(before, after)             \
    int main(void)                       \
    {                                    \
        return check_run(before, after); \
    }

static inline int check_set_up(void **state)
{
    (void)state;
    check_before();
    return 0;
}

static inline int check_tear_down(void **state)
{
    (void)state;
    check_after();
    return 0;
}

static inline int check_run(void (*before)(void), void (*after)(void))
{
    check_before = before;
    check_after = after;
    for (size_t i = 0; i < check_count; i++) {
        check_tests[i].setup_func = before ? check_set_up : NULL;
        check_tests[i].teardown_func = after ? check_tear_down : NULL;
    }
    return _cmocka_run_group_tests("tests", check_tests, check_count, NULL, NULL);
}

/* Fails unless `part` stands in `text`; says both. */
static inline void check_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

/* assert_done(result): it is not 0, or its reason is said. assert_fails(condition, "part"): it
 * holds, and the reason of the failure has that part. */
#define assert_done(result)               \
    do {                                  \
        if (!(result)) {                  \
            fail_msg("%s", cmn_reason()); \
        }                                 \
    } while (0)
#define assert_fails(condition, part)       \
    do {                                    \
        assert_true(condition);             \
        check_contains(cmn_reason(), part); \
    } while (0)

/* How a process of its own ends in which the statement runs, as waitpid() says it. */
#define status_of(statement)                                \
    __extension__({                                         \
        int status_ = -1;                                   \
        pid_t pid_;                                         \
        fflush(NULL);                                       \
        pid_ = fork();                                      \
        if (pid_ == 0) {                                    \
            statement;                                      \
            _exit(0);                                       \
        }                                                   \
        assert_int_equal(waitpid(pid_, &status_, 0), pid_); \
        status_;                                            \
    })

/* Random numbers, the same in each run. */
static inline float uniform(float low, float high)
{
    static uint32_t x = 1;

    x = x * 1664525u + 1013904223u;
    return low + (high - low) * (float)(x >> 8) / (float)(1 << 24);
}

/* What is said on the standard error between the two calls, up to 4 KB. */
static int check_stderr = -1;

static inline void check_listen(void)
{
    FILE *file = tmpfile();

    assert_non_null(file);
    check_stderr = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    fclose(file);
}

static inline const char *check_said(void)
{
    static char text[4096];
    ssize_t n = pread(STDERR_FILENO, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    dup2(check_stderr, STDERR_FILENO);
    close(check_stderr);
    return text;
}

/* No other file's name begins with that name: no temporary file is left. */
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

/* assert_fatal(statement, "part of the message"): the statement ends in cmn_fatal(), with status
 * 1; assert_fatal_lost: in cmn_fatal_lost(). What the statement had in hand is lost, memory too. */
static sigjmp_buf check_ended;
static char check_message[1024];
static int check_lost;

static inline void check_end(const char *message, int lost)
{
    snprintf(check_message, sizeof check_message, "%s", message);
    check_lost = lost;
    siglongjmp(check_ended, 1);
}

/* The message with which the statement ends the job, or NULL. */
#define fatal_of(statement)               \
    __extension__({                       \
        const char *volatile end_ = NULL; \
        cmn_fatal_handler(check_end);     \
        if (sigsetjmp(check_ended, 1)) {  \
            end_ = check_message;         \
        } else {                          \
            statement;                    \
        }                                 \
        cmn_fatal_handler(NULL);          \
        end_;                             \
    })
#define check_fatal(statement, part, is_lost)    \
    do {                                         \
        const char *fatal = fatal_of(statement); \
        assert_non_null(fatal);                  \
        check_contains(fatal, part);             \
        assert_int_equal(check_lost, is_lost);   \
    } while (0)
#define assert_fatal(statement, part) check_fatal(statement, part, 0)
#define assert_fatal_lost(statement, part) check_fatal(statement, part, 1)

#endif
