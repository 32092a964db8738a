/* The calls of cmn.h that checkpoints need. */
#include "checkpoint_file.h"
#include "cmn.h"
#include "darknet.h"
#include "job.h"
#include "training.h"

int cmn_follows(FILE *weights)
{
    return cmn_checkpoint_behind(weights);
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
