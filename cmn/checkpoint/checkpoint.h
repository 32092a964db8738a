/* What a rank puts into a checkpoint, and gets out of it: named blocks of memory. */
#ifndef CMN_CHECKPOINT_H
#define CMN_CHECKPOINT_H

#include <stddef.h>

#include "base/values.h"
#include "checkpoint/format.h"

/* What other ranks than those that wrote the checkpoint get. */
enum cmn_merge {
    CMN_MERGE_FIRST, /* what rank 0 had */
    CMN_MERGE_SUM,   /* floats: the sum over the old ranks */
    CMN_MERGE_MEAN,  /* floats: their mean */
    CMN_MERGE_DROP   /* nothing */
};

/* This rank's part of a tensor. The ranks have a tensor in common, or each has one of its own with
 * this name. */
struct cmn_checkpoint_item {
    char name[CMN_TENSOR_NAME];
    int own;       /* each rank has one of its own */
    void *data;    /* this rank's part; the caller's memory */
    size_t first;  /* byte of the tensor at which the part begins */
    size_t bytes;  /* of the part */
    int elsewhere; /* not written from here: another rank does, or the weights hold the same bytes */
    int layer;     /* of the network whose weights file holds the item, from 1 on; 0: none does */
    enum cmn_merge merge;
    int of_exchange; /* it means nothing to another communicator, or on other nodes */
    int optional;    /* a file may lack the tensor, or the end of it, and that is no damage */
    float scale;     /* floats are multiplied by it when they are read; 1: nothing is changed */
    enum cmn_values values; /* what may be read there */
    long most;
    size_t got; /* bytes that were read; what was not is left as it was */
};

/* Who wrote a checkpoint. */
struct cmn_checkpoint_origin {
    int ranks;
    int same_ranks; /* as many as now: each gets its own again */
    int same_nodes; /* and on the same nodes, by the same communicator */
};

#endif
