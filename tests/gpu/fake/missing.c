/* Darknet's kernels that have no stand-in, because no test's network has such a layer. */
#include <stdio.h>
#include <stdlib.h>

#define NONE(name)                                                    \
    void name(void);                                                  \
    void name(void)                                                   \
    {                                                                 \
        fprintf(stderr, "the stand-in for a GPU has no " #name "\n"); \
        abort();                                                      \
    }

NONE(add_gpu)
NONE(backward_avgpool_layer_gpu)
NONE(backward_deconvolutional_layer_gpu)
NONE(col2im_gpu)
NONE(const_gpu)
NONE(flatten_gpu)
NONE(forward_avgpool_layer_gpu)
NONE(forward_crop_layer_gpu)
NONE(forward_deconvolutional_layer_gpu)
NONE(im2col_gpu)
NONE(l1_gpu)
NONE(l2_gpu)
NONE(l2normalize_gpu)
NONE(logistic_x_ent_gpu)
NONE(mask_gpu)
NONE(pow_gpu)
NONE(reorg_gpu)
NONE(scale_mask_gpu)
NONE(shortcut_gpu)
NONE(smooth_l1_gpu)
NONE(softmax_tree)
NONE(supp_gpu)
NONE(update_deconvolutional_layer_gpu)
NONE(upsample_gpu)
NONE(wgan_gpu)
