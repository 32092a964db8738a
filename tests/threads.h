/* Threads of a test that begin at the same time. */
#ifndef TESTS_THREADS_H
#define TESTS_THREADS_H

#include "check.h"

#include <pthread.h>

static pthread_barrier_t threads_start;
static void (*threads_work)(int i);

static inline void *threads_begin(void *i)
{
    pthread_barrier_wait(&threads_start);
    threads_work((int)(intptr_t)i);
    return NULL;
}

/* Calls work(0) to work(n - 1), each in a thread of its own, and returns when they have ended. They
 * note what is wrong: cmocka's assertions belong to the main thread. */
static inline void in_threads(int n, void (*work)(int i))
{
    pthread_t thread[8];

    assert_in_range(n, 1, COUNT(thread));
    threads_work = work;
    pthread_barrier_init(&threads_start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, threads_begin, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
    }
    pthread_barrier_destroy(&threads_start);
}

#endif
