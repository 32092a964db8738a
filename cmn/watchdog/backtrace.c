#include "watchdog/backtrace.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* OURS are two additional frames: the handler, and the frame that the kernel puts below it. */
enum { FRAMES = 24, OURS = 2, ASKED = -1, ANSWER_US = 1000000, LOOK_US = 10000 };

static pthread_t main_thread;
static int is_open;
static void *frame[FRAMES + OURS];
static atomic_int frames;    /* in `frame`; ASKED: the main thread has not answered yet */
static int objects_at_start; /* these come first in the list, and are never unloaded */

static int signal_number(void)
{
    return SIGRTMAX - 2;
}

/* This is a signal handler, which may call only few functions. backtrace() loads libgcc in its
 * first call, which cmn_backtrace_open() makes. From then on it takes no memory, and no lock
 * either: glibc 2.35 and libgcc 12 look addresses up by _dl_find_object(). Older ones take the
 * dynamic linker's lock. The main thread may hold that lock itself; if another thread holds it,
 * this handler does not answer in time, and the job ends without its stack. Signals queue up: of
 * those that come late, one answers, because `frame` may be read after that. */
static void answer(int number)
{
    int saved = errno, asked = ASKED;

    (void)number;
    if (atomic_compare_exchange_strong(&frames, &asked, 0)) {
        atomic_store(&frames, backtrace(frame, FRAMES + OURS));
    }
    errno = saved;
}

static int count_object(struct dl_phdr_info *object, size_t size, void *count)
{
    (void)object;
    (void)size;
    ++*(int *)count;
    return 0;
}

void cmn_backtrace_open(void)
{
    struct sigaction action;
    void *once[1];

    /* The first call loads a library, which a handler must not do. */
    backtrace(once, 1);
    objects_at_start = 0;
    dl_iterate_phdr(count_object, &objects_at_start);
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = answer;
    action.sa_flags = SA_RESTART;
    is_open = !sigaction(signal_number(), &action, NULL);
}

/* Where an address lies. Names are copied while the linker's lock is held, because Open MPI unloads
 * its parts at its end, and their names with them. */
struct place {
    char file[64];
    unsigned long base;
    int lasts; /* the object is never unloaded, so its symbols stay readable */
    uintptr_t at;
    int object;
};

static int find_object(struct dl_phdr_info *object, size_t size, void *to)
{
    struct place *p = to;
    const char *name = object->dlpi_name;

    (void)size;
    p->object++;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && p->at - object->dlpi_addr - part->p_vaddr < part->p_memsz) {
            const char *slash = strrchr(name, '/');
            name = slash ? slash + 1 : *name ? name : program_invocation_short_name;
            snprintf(p->file, sizeof p->file, "%s", name);
            p->base = object->dlpi_addr;
            p->lasts = p->object <= objects_at_start;
            return 1;
        }
    }
    return 0;
}

/* Writes one line for a frame. Without the function's name, the line has what `addr2line -e FILE`
 * takes. */
static int print_frame(char *text, size_t bytes, const char *prefix, int i, void *at)
{
    struct place place = {.at = (uintptr_t)at};
    Dl_info info = {0};

    if (!dl_iterate_phdr(find_object, &place)) {
        return snprintf(text, bytes, "%s#%d %p\n", prefix, i, at);
    }
    return place.lasts && dladdr(at, &info) && info.dli_sname
               ? snprintf(text, bytes, "%s#%d %s+%#lx (%s)\n", prefix, i, info.dli_sname,
                          (unsigned long)((char *)at - (char *)info.dli_saddr), place.file)
               : snprintf(text, bytes, "%s#%d %s+%#lx\n", prefix, i, place.file,
                          (unsigned long)place.at - place.base);
}

void cmn_backtrace_text(const char *prefix, char *text, size_t bytes)
{
    size_t used = 0;
    int n = 0;

    atomic_store(&frames, ASKED);
    if (is_open && !pthread_kill(main_thread, signal_number())) {
        for (int us = 0; us < ANSWER_US && n <= 0; us += LOOK_US) {
            usleep(LOOK_US);
            n = atomic_load(&frames);
        }
    }
    if (n <= OURS) {
        snprintf(text, bytes, "%sno stack: the main thread does not answer\n", prefix);
        return;
    }
    for (int i = OURS; i < n; i++) {
        int more = print_frame(text + used, bytes - used, prefix, i - OURS, frame[i]);
        if (more < 0 || used + (size_t)more >= bytes) {
            text[used] = '\0'; /* Part of a line would mislead. */
            return;
        }
        used += (size_t)more;
    }
}
