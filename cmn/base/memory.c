#include "base/memory.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"

/* ---- allocation ---- */

static void *must(void *p, size_t n, size_t size)
{
    if (!p && n && size) {
        cmn_fatal("out of memory: %zu bytes cannot be had", n * size);
    }
    return p;
}

void *cmn_malloc(size_t n, size_t size)
{
    return cmn_realloc(NULL, n, size);
}

void *cmn_calloc(size_t n, size_t size)
{
    return must(calloc(n ? n : 1, size ? size : 1), n ? n : 1, size ? size : 1);
}

void *cmn_realloc(void *p, size_t n, size_t size)
{
    n = n && size ? n : 1;
    size = size ? size : 1;
    return must(reallocarray(p, n, size), n, size);
}

char *cmn_strdup(const char *text)
{
    return must(strdup(text), strlen(text) + 1, 1);
}

char *cmn_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        text = must(NULL, strlen(format), 1);
    }
    va_end(args);
    return text;
}

float *cmn_alloc_floats(size_t floats)
{
    size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    float *x = must(aligned_alloc(64, bytes ? bytes : 64), bytes, 1);

    memset(x, 0, bytes);
    return x;
}

/* ---- how much is left ---- */

static unsigned long long number_in(const char *file, unsigned long long otherwise)
{
    unsigned long long value = otherwise;
    FILE *in = fopen(file, "r");

    if (in) {
        if (fscanf(in, "%llu", &value) != 1) {
            value = otherwise; /* The file says "max". */
        }
        fclose(in);
    }
    return value;
}

/* Returns the number after `name` at the beginning of a line, or 0. */
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

/* The files of a memory control group, of version 1 and of version 2. */
static const struct {
    const char *most, *taken, *details, *cache;
} file_of[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file "},
    {"memory.max", "memory.current", "memory.stat", "inactive_file "},
};

static unsigned long long left_in(const char *folder, int v2)
{
    char most_name[4352], taken_name[4352], details_name[4352];
    unsigned long long most, taken, cache;

    snprintf(most_name, sizeof most_name, "%s/%s", folder, file_of[v2].most);
    snprintf(taken_name, sizeof taken_name, "%s/%s", folder, file_of[v2].taken);
    snprintf(details_name, sizeof details_name, "%s/%s", folder, file_of[v2].details);
    most = number_in(most_name, ULLONG_MAX);
    if (most == ULLONG_MAX) {
        return ULLONG_MAX;
    }
    taken = number_in(taken_name, 0);
    cache = entry_of(details_name, file_of[v2].cache);
    taken -= cache < taken ? cache : taken;
    return most > taken ? most - taken : 0;
}

/* Looks at the group itself and at all groups above it, since each may set a limit. In a container
 * the path may be the one on the host, of which only the last folder, or none, exists here. */
static unsigned long long left_up_from(const char *root, const char *path, int v2)
{
    unsigned long long left = ULLONG_MAX, here;
    char folder[4224];
    size_t end;

    snprintf(folder, sizeof folder, "%s%s%s", root, v2 ? "" : "/memory", path);
    end = strlen(root) + (v2 ? 0 : strlen("/memory"));
    for (;;) {
        char *slash = strrchr(folder, '/');
        here = left_in(folder, v2);
        left = here < left ? here : left;
        if (strlen(folder) <= end || !slash) {
            return left;
        }
        *slash = '\0';
    }
}

/* Returns whether a comma-separated list contains "memory". */
static int has_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");

    return at && (at == controllers || at[-1] == ',') && (!at[6] || at[6] == ',');
}

size_t cmn_memory_left(const char *groups, const char *root)
{
    unsigned long long left = ULLONG_MAX, here;
    char line[4200];
    FILE *in = fopen(groups, "r");

    while (in && fgets(line, sizeof line, in)) {
        char *controllers = strchr(line, ':'), *path;
        if (!controllers || !(path = strchr(++controllers, ':'))) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (!*controllers || has_memory(controllers)) {
            here = left_up_from(root, path, !*controllers);
            left = here < left ? here : left;
        }
    }
    if (in) {
        fclose(in);
    }
    return left > SIZE_MAX ? SIZE_MAX : (size_t)left;
}

size_t cmn_memory_free(void)
{
    unsigned long long free_bytes = entry_of("/proc/meminfo", "MemAvailable:") * 1024;
    size_t left = cmn_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");

    return free_bytes < left ? (size_t)free_bytes : left;
}
