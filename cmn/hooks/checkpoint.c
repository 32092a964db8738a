/* The calls of cmn.h that checkpoints need. */
#include <string.h>

#include "checkpoint/reader.h"
#include "cmn.h"
#include "darknet.h"
#include "hooks/job.h"
#include "base/log.h"
#include "report/report.h"
#include "trainer/trainer.h"

int cmn_checkpoint_follows(FILE *weights)
{
    return cmn_checkpoint_follows_weights(weights);
}

int cmn_weights_not_written(struct network *net, const char *file, int reason)
{
    struct cmn_trainer *t = net->cmn;

    if (!t || !cmn_trainer_checkpoints_continue(t)) {
        return 0;
    }
    cmn_report_clear(t->report);
    cmn_warn("weights not written to %s: %s; the training goes on, and its checkpoints keep it",
             file, strerror(reason));
    cmn_check(cmn_trainer_saved(t));
    return 1;
}

int cmn_steps_done(struct network *net)
{
    const struct cmn_trainer *t = net->cmn;

    return t ? (int)(t->earlier + t->steps) : 0;
}

int cmn_restore_offset(struct network *net, size_t *offset, int j)
{
    int there = net->cmn ? cmn_trainer_offset(net->cmn, offset, j) : 0;

    cmn_check(there);
    return there;
}
