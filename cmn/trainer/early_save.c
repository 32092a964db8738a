#include "trainer/early_save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/output.h"
#include "engine/nonfinite.h"
#include "watchdog/launcher.h"

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

void cmn_early_save(struct cmn_model *m, long iteration, size_t seen, float statistics_scale)
{
    const struct cmn_session *s = m->session;
    char file[PATH_MAX], line[PATH_MAX + 128], target[PATH_MAX];
    struct cmn_nonfinite bad;

    if (s->topology.rank || !s->backup[0] || s->command->does != CMN_TRAINS || !m->attached ||
        cmn_output_fatal_said() || cmn_nonfinite_tensor(&m->gradients, CMN_WEIGHT, &bad)) {
        return;
    }
    snprintf(file, sizeof file, "%s/%s%s.weights", s->backup, m->name,
             cmn_command_final(s->command));
    if (target_of(file, target) || replace(m, target, seen, statistics_scale)) {
        snprintf(line, sizeof line, "cmn: asked to stop: weights not saved to %s: %s\n", file,
                 strerror(errno));
    } else {
        snprintf(line, sizeof line, "cmn: asked to stop: weights of iteration %ld saved to %s\n",
                 iteration, file);
    }
    cmn_launcher_say_stop(line);
}
