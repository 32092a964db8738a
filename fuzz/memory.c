#include "fuzz_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

size_t fuzz_memory_limit = 256u << 20;

/* What Darknet holds: blocks and open files, by their address. */
struct held {
    void *at;
    size_t size;
    int is_file;
    UT_hash_handle hh;
};
static struct held *all;
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the writer of checkpoints is a thread */

static void *hold(void *at, size_t size, int is_file)
{
    struct held *h = at ? malloc(sizeof *h) : NULL;

    if (h) {
        h->at = at;
        h->size = size;
        h->is_file = is_file;
        pthread_mutex_lock(&lock);
        HASH_ADD_PTR(all, at, h);
        used += size;
        pthread_mutex_unlock(&lock);
    }
    return at;
}

static void let_go(const void *at)
{
    struct held *h;

    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(all, &at, h);
    if (h) {
        used -= h->size;
        HASH_DEL(all, h);
        free(h);
    }
    pthread_mutex_unlock(&lock);
}

static int too_much(size_t size)
{
    return size > fuzz_memory_limit || used + size > fuzz_memory_limit;
}

void *fuzz_malloc(size_t size)
{
    return too_much(size) ? NULL : hold(malloc(size), size, 0);
}

void *fuzz_calloc(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) || too_much(bytes)) {
        return NULL;
    }
    return hold(calloc(n, size), bytes, 0);
}

void *fuzz_realloc(void *old, size_t size)
{
    void *new;

    if (too_much(size)) {
        return NULL;
    }
    let_go(old);
    new = realloc(old, size);
    return hold(new, size, 0);
}

void *fuzz_reallocarray(void *old, size_t n, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(n, size, &bytes) ? NULL : fuzz_realloc(old, bytes);
}

void *fuzz_aligned_alloc(size_t to, size_t size)
{
    return too_much(size) ? NULL : hold(aligned_alloc(to, size), size, 0);
}

char *fuzz_strdup(const char *text)
{
    size_t size = strlen(text) + 1;

    return too_much(size) ? NULL : hold(strdup(text), size, 0);
}

void fuzz_free(void *old)
{
    let_go(old);
    free(old);
}

/* A device that never ends is nothing that anybody has to notice, and a FIFO never begins. */
static int is_elsewhere(const char *name)
{
    return name[0] == '/' && strncmp(name, "/dev/fd/", 8);
}

FILE *fuzz_fopen(const char *name, const char *mode)
{
    if (is_elsewhere(name)) {
        errno = ENOENT;
        return NULL;
    }
    return hold(fopen(name, mode), 0, 1);
}

FILE *fuzz_fdopen(int fd, const char *mode)
{
    return hold(fdopen(fd, mode), 0, 1);
}

/* To read. Whoever opens it closes it before anything can end the input. */
int fuzz_open(const char *name, int flags, ...)
{
    if (is_elsewhere(name)) {
        errno = ENOENT;
        return -1;
    }
    return open(name, flags);
}

int fuzz_fclose(FILE *file)
{
    let_go(file);
    return fclose(file);
}

void fuzz_memory_keep(void)
{
    struct held *h, *next;

    HASH_ITER(hh, all, h, next)
    {
        HASH_DEL(all, h);
        free(h);
    }
    used = 0;
}

/* The same input gives the same training. */
time_t fuzz_time(time_t *at)
{
    (void)at;
    return 1;
}

/* Threads run at once, in their caller: an error in one of them ends the input as any other. */
int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                        void *argument)
{
    (void)attributes;
    *thread = pthread_self();
    run(argument);
    return 0;
}

int fuzz_pthread_join(pthread_t thread, void **result)
{
    (void)thread;
    (void)result;
    return 0;
}

void fuzz_memory_forget(void)
{
    struct held *h, *next;

    HASH_ITER(hh, all, h, next)
    {
        HASH_DEL(all, h);
        if (h->is_file) {
            fclose(h->at);
        } else {
            free(h->at);
        }
        free(h);
    }
    used = 0;
}
