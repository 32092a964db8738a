/* memory: allocation that ends the job when memory is short, and how much memory the machine,
 * container or job can still give. Local. */
#ifndef CMN_MEMORY_H
#define CMN_MEMORY_H

#include <stddef.h>

/* These functions never return NULL: the job ends when memory is short. The caller frees the
 * result. An array has n items of `size` bytes each. */
void *cmn_malloc(size_t n, size_t size);
void *cmn_calloc(size_t n, size_t size); /* zeroed */
void *cmn_realloc(void *p, size_t n, size_t size);
char *cmn_strdup(const char *text);
char *cmn_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns zeroed floats, aligned to 64 bytes (a cache line). The caller frees them. */
float *cmn_alloc_floats(size_t floats);

/* Local. Returns the bytes that this process can take without swapping and without being killed for
 * it. The file cache counts as free. */
size_t cmn_memory_free(void);

/* Local. Returns the bytes that the control groups leave to a process, or SIZE_MAX if none of them
 * sets a limit. `groups` is the process's /proc/self/cgroup, and `root` is /sys/fs/cgroup. */
size_t cmn_memory_left(const char *groups, const char *root);

#endif
