#include "config/cfg_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/cfg_numbers.h"

/* These keys are in AlexeyAB's Darknet (commit 59596d78, src/parser.c), and not in pjreddie's. */
static const char foreign[] =
    " "
    "adversarial_lr antialiasing assisted_excitation atoms attention augment_speed "
    "badlabels_rejection_percentage beta_nms bin_output blur bottleneck burnin_update cbn "
    "cls_normalizer "
    "contrastive contrastive_color contrastive_jit_flip contrastive_neg_max coordconv "
    "counters_per_class cutmix delta_normalizer dets_for_show dets_for_track dilation "
    "dont_update dropblock dropblock_size_abs dropblock_size_rel dynamic_minibatch ema_alpha "
    "embedding_layer equidistant_point focal_loss gaussian_noise grad_centr group_id "
    "hidden history_size iou_loss iou_normalizer iou_thresh iou_thresh_kind label_smooth_eps "
    "learning_rate_min letter_box logistic loss_scale lstm_activation max_chart_loss max_delta "
    "mean "
    "maxpool_depth maxpool_zero_nonmax mixup mosaic mosaic_bound new_coords nms_kind "
    "num_sigmas_reject_badlabels obj_normalizer objectness_smooth optimized_memory "
    "out_channels peephole resize resize_step rotate scale_wh scale_x_y seq_scales "
    "sequential_subdivisions sgdr_cycle sgdr_mult share_index show_details "
    "show_receptive_field sim_thresh state_constrain std stream stretch stretch_sway stride_x "
    "stride_y "
    "sway time_normalizer track track_ciou_norm track_history_size train_only_bn try_fix_nan "
    "uc_normalizer unsupervised use_cuda_graph wait_stream weights_normalization "
    "weights_reject_freq weights_type workspace_size_limit_MB yolo_layer yolo_point ";

/* Darknet looks for these keys of [net] only where another key has one of these values. */
static const struct {
    const char *key, *other, *values, *needs;
} conditional[] = {
    {"steps", "policy", " steps sgdr ", "policy=steps"},
    {"scales", "policy", " steps sgdr ", "policy=steps"},
    {"step", "policy", " step sigmoid ", "policy=step or sigmoid"},
    {"scale", "policy", " step ", "policy=step"},
    {"gamma", "policy", " exp sigmoid ", "policy=exp or sigmoid"},
    {"B1", "adam", " 1 ", "adam=1"},
    {"B2", "adam", " 1 ", "adam=1"},
    {"eps", "adam", " 1 ", "adam=1"},
};

int cmn_cfg_is_among(const char *list, const char *word)
{
    char spaced[64];

    return snprintf(spaced, sizeof spaced, " %s ", word) < (int)sizeof spaced &&
           strstr(list, spaced);
}

int cmn_cfg_boxes(const struct cmn_cfg_file *cfg, int *classes, int *max)
{
    int finds = 0;

    for (int s = 0; s < cfg->sections; s++) {
        const char *head = cmn_cfg_find(cfg, s, NULL)->key;
        int is_detection = !strcmp(head, "[detection]"), is_region = !strcmp(head, "[region]");
        if (is_detection || is_region || !strcmp(head, "[yolo]") ||
            !strcmp(head, "[Gaussian_yolo]")) {
            finds = 1;
            *classes = cmn_cfg_int(cfg, s, "classes", is_detection ? 1 : 20);
            *max = is_detection ? 0
                                : cmn_cfg_int(cfg, s, "max",
                                              cmn_cfg_has_more() ? 200
                                              : is_region        ? 30
                                                                 : 90);
        }
    }
    return finds;
}

const char *cmn_data_train_list(int boxes)
{
    return boxes && cmn_cfg_has_more() ? "data/train.txt" : "data/train.list";
}

const char *cmn_cfg_key_needs(const struct cmn_cfg_file *cfg, const char *key)
{
    for (size_t i = 0; i < sizeof conditional / sizeof conditional[0]; i++) {
        if (!strcmp(key, conditional[i].key)) {
            const char *has = cmn_cfg_text(cfg, 0, conditional[i].other, "constant");
            return cmn_cfg_is_among(conditional[i].values, has) ? NULL : conditional[i].needs;
        }
    }
    return NULL;
}

int cmn_cfg_key_of_more(const char *key)
{
    return cmn_cfg_has_more() && (cmn_cfg_is_among(foreign, key) || cmn_cfg_number_key(key));
}

int cmn_cfg_key_elsewhere(const char *key)
{
    return !cmn_cfg_has_more() && cmn_cfg_is_among(foreign, key);
}

static int contains(const char *const *list, int n, const char *word)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i], word)) {
            return 1;
        }
    }
    return 0;
}

int cmn_data_key_describe(const char *key, int again, char *text, size_t bytes)
{
    static const char *const known[] = {"classes", "train",  "valid", "labels", "names",
                                        "backup",  "top",    "tag",   "tree",   "results",
                                        "eval",    "leaves", "map",   "test",   "saveweights"};
    const int n = sizeof known / sizeof known[0];
    const char *nearest = cmn_nearest(key, known, n);

    if (again) {
        snprintf(text, bytes, "has no effect: the file has it twice, and the first one counts");
    } else if (!contains(known, n, key)) {
        snprintf(text, bytes, "has no effect: unknown key%s%s%s", nearest ? "; did you mean " : "",
                 nearest ? nearest : "", nearest ? "?" : "");
    }
    return again || !contains(known, n, key);
}

/* Returns whether a line before line i has the same key. */
static int is_repeated(const struct cmn_cfg_file *cfg, int i)
{
    for (int j = 0; j < i; j++) {
        if (cfg->each[j].key && !strcmp(cfg->each[j].key, cfg->each[i].key)) {
            return 1;
        }
    }
    return 0;
}

int cmn_cfg_keys_elsewhere(const struct cmn_cfg_file *cfg, char *text, size_t bytes)
{
    size_t used = 0;
    int n = 0;

    text[0] = '\0';
    for (int i = 0; i < cfg->lines; i++) {
        const struct cmn_cfg_line *l = &cfg->each[i];
        if (!l->key || !cmn_cfg_key_elsewhere(l->key)) {
            continue;
        }
        n++;
        if (!is_repeated(cfg, i) && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s (line %d)", used ? ", " : "",
                                     l->key, l->line);
        }
    }
    return n;
}
