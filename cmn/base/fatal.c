#include "base/fatal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cmn.h"

static void end_process(const char *message, int lost)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

    /* The lock is never released: several threads may fail, and only one prints. */
    pthread_mutex_lock(&once);
    fflush(stdout);
    fprintf(stderr, "%s\n", message);
    _exit(lost ? CMN_EXIT_LOST : CMN_EXIT_WRONG);
}

static void (*end_job)(const char *message, int lost) = end_process;

void cmn_fatal_handler(void (*end)(const char *message, int lost))
{
    end_job = end ? end : end_process;
}

static _Noreturn void end_with(int lost, const char *format, va_list args)
{
    char message[1024];

    vsnprintf(message, sizeof message, format, args);
    cmn_printable(message); /* It holds names of files and hosts. */
    end_job(message, lost);
    end_process(message, lost); /* This is only reached if the handler returns. */
    __builtin_unreachable();
}

void cmn_fatal(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    end_with(0, format, args);
}

void cmn_fatal_lost(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    end_with(1, format, args);
}

void cmn_fatal_reason(void)
{
    if (cmn_reason_is_loss()) {
        cmn_fatal_lost("%s", cmn_reason());
    }
    cmn_fatal("%s", cmn_reason());
}
