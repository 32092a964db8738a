#include "trainer/weights_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/memory.h"

/* 0, or -1 with errno. Where a link of the user's leads, and never where one of another user does. */
static int target_of(const char *file, char *target)
{
    struct stat st;

    if (!lstat(file, &st) && S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid) {
        errno = ELOOP;
        return -1;
    }
    if (!realpath(file, target)) {
        snprintf(target, PATH_MAX, "%s", file);
    }
    return 0;
}

static void write_weights(struct cmn_model *m, FILE *out, size_t seen, float statistics_scale)
{
    size_t counted = cmn_net_seen(m->net), n = cmn_gradients_floats(&m->gradients, CMN_STATISTIC);
    float *statistics = cmn_malloc(n + 1, sizeof *statistics);

    cmn_gradients_pack(&m->gradients, CMN_STATISTIC, statistics);
    cmn_gradients_scale_statistics(&m->gradients, statistics_scale);
    cmn_net_set_seen(m->net, seen); /* Darknet counts micro-batch by micro-batch */
    cmn_net_write_weights(m->net, out);
    cmn_net_set_seen(m->net, counted);
    cmn_gradients_unpack(&m->gradients, CMN_STATISTIC, statistics);
    free(statistics);
}

/* 0, or -1 with errno. */
static int replace(struct cmn_model *m, const char *file, size_t seen, float statistics_scale)
{
    char name[PATH_MAX];
    int fd = cmn_atomic_open(file, name, sizeof name);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    int failed, reason;

    if (!out) {
        return -1;
    }
    write_weights(m, out, seen, statistics_scale);
    failed = fflush(out) || ferror(out);
    reason = errno;
    if (failed) {
        unlink(name);
    } else {
        failed = cmn_atomic_commit(fd, name, file);
        reason = errno;
    }
    fclose(out);
    errno = reason;
    return failed ? -1 : 0;
}

int cmn_weights_file_write(struct cmn_model *m, const char *file, size_t seen,
                           float statistics_scale)
{
    char target[PATH_MAX];

    return target_of(file, target) || replace(m, target, seen, statistics_scale) ? -1 : 0;
}
