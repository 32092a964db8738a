#include "memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static unsigned long long number_in(const char *file, unsigned long long otherwise)
{
    unsigned long long value = otherwise;
    FILE *in = fopen(file, "r");

    if (in) {
        if (fscanf(in, "%llu", &value) != 1) {
            value = otherwise; /* "max" */
        }
        fclose(in);
    }
    return value;
}

/* The number behind `name` at the begin of a line, or 0. */
static unsigned long long entry_of(const char *file, const char *name)
{
    unsigned long long value = 0;
    char line[256];
    FILE *in = fopen(file, "r");

    while (in && fgets(line, sizeof line, in)) {
        if (!strncmp(line, name, strlen(name)) &&
            sscanf(line + strlen(name), "%llu", &value) == 1) {
            break;
        }
    }
    if (in) {
        fclose(in);
    }
    return value;
}

/* What a container may still take: its own limit, not the host's memory. cgroup v2, then v1. */
static unsigned long long left_in_container(void)
{
    static const struct {
        const char *most, *taken, *details, *cache;
    } group[] = {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                  "/sys/fs/cgroup/memory.stat", "inactive_file "},
                 {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                  "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                  "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file "}};
    unsigned long long left = ULLONG_MAX;

    for (size_t i = 0; i < sizeof group / sizeof group[0]; i++) {
        unsigned long long most = number_in(group[i].most, ULLONG_MAX);
        unsigned long long taken = number_in(group[i].taken, 0);
        unsigned long long cache = entry_of(group[i].details, group[i].cache);
        if (most != ULLONG_MAX) {
            taken -= cache < taken ? cache : taken;
            left = most > taken ? most - taken : 0;
        }
    }
    return left;
}

size_t cmn_memory_free(void)
{
    unsigned long long free_bytes = entry_of("/proc/meminfo", "MemAvailable:") * 1024;
    unsigned long long left = left_in_container();

    return (size_t)(free_bytes < left ? free_bytes : left);
}
