/* Memory: allocation that ends the job when there is none, and how much the machine, container
 * or job can still give. Local. */
#ifndef CMN_MEMORY_H
#define CMN_MEMORY_H

#include <stddef.h>

/* The caller frees what these return, which is never NULL: the job ends when memory is short. n
 * items of `size` bytes each. */
void *cmn_malloc(size_t n, size_t size);
void *cmn_calloc(size_t n, size_t size); /* zeroed */
void *cmn_realloc(void *p, size_t n, size_t size);
char *cmn_strdup(const char *text);
char *cmn_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed floats at a multiple of 64 bytes, a line of the caches. The caller frees. */
float *cmn_alloc_floats(size_t floats);

/* Local. Bytes that can be taken without swapping or being killed for it; file cache counts as
 * free. */
size_t cmn_memory_free(void);

/* Local. What the control groups leave to a process whose /proc/self/cgroup is `groups`, where
 * `root` is /sys/fs/cgroup; SIZE_MAX when none of them limits. */
size_t cmn_memory_left(const char *groups, const char *root);

#endif
