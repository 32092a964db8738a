/* In the fuzzed build Darknet's memory, files, threads and time come from here (fuzz.mk). They are
 * counted, so that an error in the midst of an input leaves nothing behind, and no input takes more
 * than fuzz_memory_limit bytes. */
#ifndef FUZZ_MEMORY_H
#define FUZZ_MEMORY_H

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

extern size_t fuzz_memory_limit;

void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t n, size_t size);
void *fuzz_realloc(void *old, size_t size);
void *fuzz_reallocarray(void *old, size_t n, size_t size);
void *fuzz_aligned_alloc(size_t to, size_t size);
char *fuzz_strdup(const char *text);
void fuzz_free(void *old);
FILE *fuzz_fopen(const char *name, const char *mode);
FILE *fuzz_fdopen(int fd, const char *mode);
int fuzz_open(const char *name, int flags, ...);
int fuzz_fclose(FILE *file);
time_t fuzz_time(time_t *at);
int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                        void *argument);
int fuzz_pthread_join(pthread_t thread, void **result);

/* What is held now stays. */
void fuzz_memory_keep(void);

/* The input is done. */
void fuzz_memory_forget(void);

#endif
