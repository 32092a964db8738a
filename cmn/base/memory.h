/* How much memory this machine, or the container or job on it, can still give. */
#ifndef CMN_MEMORY_H
#define CMN_MEMORY_H

#include <stddef.h>

/* Local. Bytes that can be taken without swapping or being killed for it; file cache counts as free. */
size_t cmn_memory_free(void);

/* Local. What the control groups leave to a process whose /proc/self/cgroup is `groups`, where `root` is
 * /sys/fs/cgroup; SIZE_MAX when none of them limits. */
size_t cmn_memory_left(const char *groups, const char *root);

#endif
