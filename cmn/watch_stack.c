#include "watch_stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two more: the handler, and what the kernel puts below it. */
enum { FRAMES = 24, OURS = 2, ANSWER_US = 1000000, LOOK_US = 10000 };

static pthread_t main_thread;
static int is_open;
static void *frame[FRAMES + OURS];
static atomic_int frames;

static int signal_number(void)
{
    return SIGRTMAX - 2;
}

static void answer(int number)
{
    int saved = errno, n = 0;

    (void)number;
    n = backtrace(frame, FRAMES + OURS);
    atomic_store(&frames, n);
    errno = saved;
}

void cmn_stack_open(void)
{
    struct sigaction action;
    void *once[1];

    /* The first call loads a library, and that is nothing for a handler. */
    backtrace(once, 1);
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = answer;
    action.sa_flags = SA_RESTART;
    is_open = !sigaction(signal_number(), &action, NULL);
}

static const char *file_of(const Dl_info *info)
{
    const char *slash = info->dli_fname ? strrchr(info->dli_fname, '/') : NULL;

    return slash ? slash + 1 : info->dli_fname ? info->dli_fname : "?";
}

/* Without a name of the function, what `addr2line -e FILE` wants to know. */
static int print_frame(char *text, size_t bytes, const char *prefix, int i, void *at)
{
    Dl_info info = {0};

    if (!dladdr(at, &info)) {
        return snprintf(text, bytes, "%s#%d %p\n", prefix, i, at);
    }
    return info.dli_sname
               ? snprintf(text, bytes, "%s#%d %s+%#lx (%s)\n", prefix, i, info.dli_sname,
                          (unsigned long)((char *)at - (char *)info.dli_saddr), file_of(&info))
               : snprintf(text, bytes, "%s#%d %s+%#lx\n", prefix, i, file_of(&info),
                          (unsigned long)((char *)at - (char *)info.dli_fbase));
}

void cmn_stack_text(const char *prefix, char *text, size_t bytes)
{
    size_t used = 0;
    int n = 0;

    atomic_store(&frames, 0);
    if (is_open && !pthread_kill(main_thread, signal_number())) {
        for (int us = 0; us < ANSWER_US && !n; us += LOOK_US) {
            usleep(LOOK_US);
            n = atomic_load(&frames);
        }
    }
    text[0] = '\0';
    if (n <= OURS) {
        snprintf(text, bytes, "%sno stack: the main thread does not answer\n", prefix);
        return;
    }
    for (int i = OURS; i < n; i++) {
        int more = print_frame(text + used, bytes - used, prefix, i - OURS, frame[i]);
        if (more < 0 || used + (size_t)more >= bytes) {
            text[used] = '\0'; /* a part of a line says nothing */
            return;
        }
        used += (size_t)more;
    }
}
