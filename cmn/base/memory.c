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

/* Returns the number after `name` at the beginning of a line of the file, or `otherwise`. */
static unsigned long long entry_of(const char *folder, const char *file, const char *name,
                                   unsigned long long otherwise)
{
    unsigned long long value = otherwise;
    char path[4352], line[256];
    FILE *in;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    in = fopen(path, "r");
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

/* The files of a memory control group, of version 1 and of version 2, and an entry of
 * memory.stat. */
static const struct {
    const char *most, *taken, *cache;
} file_of[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
    {"memory.max", "memory.current", "inactive_file "},
};

static unsigned long long left_in(const char *folder, int v2)
{
    /* The file says "max" where there is no limit. */
    unsigned long long most = entry_of(folder, file_of[v2].most, "", ULLONG_MAX);
    unsigned long long taken = entry_of(folder, file_of[v2].taken, "", 0);
    unsigned long long cache = entry_of(folder, "memory.stat", file_of[v2].cache, 0);

    taken -= cache < taken ? cache : taken;
    return most == ULLONG_MAX ? ULLONG_MAX : most > taken ? most - taken : 0;
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
    unsigned long long free_bytes = entry_of("/proc", "meminfo", "MemAvailable:", 0) * 1024;
    size_t left = cmn_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");

    return free_bytes < left ? (size_t)free_bytes : left;
}
