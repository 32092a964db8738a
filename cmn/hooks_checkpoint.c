/* The calls of cmn.h that checkpoints need. */
#include <string.h>

#include "checkpoint_file.h"
#include "cmn.h"
#include "darknet.h"
#include "job.h"
#include "log.h"
#include "report/report.h"
#include "training.h"

int cmn_follows(FILE *weights)
{
    return cmn_checkpoint_behind(weights);
}

int cmn_unwritten(struct network *net, const char *file, int reason)
{
    struct cmn_training *t = net->cmn;

    if (!t || !cmn_training_goes_on(t)) {
        return 0;
    }
    cmn_report_clear(t->report);
    cmn_warn("weights not written to %s: %s; the training goes on, and its checkpoints keep it",
             file, strerror(reason));
    cmn_check(cmn_training_saved(t));
    return 1;
}

int cmn_count(struct network *net)
{
    const struct cmn_training *t = net->cmn;

    return t ? (int)(t->earlier + t->steps) : 0;
}

int cmn_offset(struct network *net, size_t *offset, int j)
{
    int there = net->cmn ? cmn_training_offset(net->cmn, offset, j) : 0;

    cmn_check(there);
    return there;
}
