#include "trainer/early_save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/launcher.h"
#include "base/output.h"
#include "base/stop_request.h"
#include "engine/nonfinite.h"
#include "trainer/weights_file.h"

void cmn_early_save(struct cmn_model *m, long iteration, size_t seen,
                    const struct cmn_rolling_factor *statistics)
{
    const struct cmn_session *s = m->session;
    char file[PATH_MAX], line[PATH_MAX + 128];
    struct cmn_nonfinite bad;

    if (s->topology.rank || !s->backup[0] || s->command->does != CMN_TRAINS || !m->attached ||
        cmn_output_fatal_said() || cmn_nonfinite_tensor(&m->gradients, CMN_WEIGHT, &bad)) {
        return;
    }
    snprintf(file, sizeof file, "%s/%s%s.weights", s->backup, m->name,
             cmn_command_final(s->command));
    if (cmn_weights_file_write(m, file, seen, statistics)) {
        snprintf(line, sizeof line, "cmn: asked to stop: weights not saved to %s: %s\n", file,
                 strerror(errno));
    } else {
        snprintf(line, sizeof line, "cmn: asked to stop: weights of iteration %ld saved to %s\n",
                 iteration, file);
    }
    cmn_launcher_say_stop(cmn_stop_sender(), line);
}
