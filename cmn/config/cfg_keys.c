#include "config/cfg_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* These keys are in AlexeyAB's Darknet (commit 59596d78, src/parser.c), and not in pjreddie's. */
static const char foreign[] =
    " "
    "adversarial_lr antialiasing assisted_excitation augment_speed "
    "badlabels_rejection_percentage beta_nms blur bottleneck burnin_update cbn cls_normalizer "
    "contrastive contrastive_color contrastive_jit_flip contrastive_neg_max coordconv "
    "counters_per_class cutmix delta_normalizer dets_for_show dets_for_track dilation "
    "dont_update dropblock dropblock_size_abs dropblock_size_rel dynamic_minibatch ema_alpha "
    "embedding_layer equidistant_point focal_loss gaussian_noise grad_centr group_id "
    "history_size iou_loss iou_normalizer iou_thresh iou_thresh_kind label_smooth_eps "
    "learning_rate_min letter_box loss_scale lstm_activation max_chart_loss max_delta "
    "maxpool_depth maxpool_zero_nonmax mixup mosaic mosaic_bound new_coords nms_kind "
    "num_sigmas_reject_badlabels obj_normalizer objectness_smooth optimized_memory "
    "out_channels peephole resize resize_step rotate scale_wh scale_x_y seq_scales "
    "sequential_subdivisions sgdr_cycle sgdr_mult share_index show_details "
    "show_receptive_field sim_thresh state_constrain stretch stretch_sway stride_x stride_y "
    "sway time_normalizer track_ciou_norm track_history_size train_only_bn try_fix_nan "
    "uc_normalizer unsupervised use_cuda_graph wait_stream weights_normalization "
    "weights_reject_freq weights_type workspace_size_limit_MB yolo_layer yolo_point ";

static const char *elsewhere = foreign;

void cmn_cfg_keys_none_elsewhere(void)
{
    elsewhere = "";
}

/* Darknet looks for these keys in [net] only where `needs` asks for them. */
static const struct {
    const char *key, *needs;
} conditional[] = {
    {"steps", "policy=steps"},
    {"scales", "policy=steps"},
    {"step", "policy=step or sigmoid"},
    {"scale", "policy=step"},
    {"gamma", "policy=exp or sigmoid"},
    {"B1", "adam=1"},
    {"B2", "adam=1"},
    {"eps", "adam=1"},
};

static const char *needs(const char *key)
{
    for (size_t i = 0; i < sizeof conditional / sizeof conditional[0]; i++) {
        if (!strcmp(key, conditional[i].key)) {
            return conditional[i].needs;
        }
    }
    return NULL;
}

int cmn_cfg_key_elsewhere(const char *key)
{
    char word[64];

    return snprintf(word, sizeof word, " %s ", key) < (int)sizeof word && strstr(elsewhere, word);
}

static int contains(const char *const *words, int n, const char *word)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(words[i], word)) {
            return 1;
        }
    }
    return 0;
}

void cmn_cfg_key_describe(const char *key, const char *const *looked_for, int n, char *text,
                          size_t bytes)
{
    const char *nearest = cmn_nearest(key, looked_for, n);
    int is_net = contains(looked_for, n, "policy");

    if (is_net && needs(key)) {
        snprintf(text, bytes, "has no effect without %s", needs(key));
        /* This is [route]. */
    } else if (!strcmp(key, "groups") && contains(looked_for, n, "layers")) {
        snprintf(text, bytes,
                 "has no effect: AlexeyAB's Darknet has this key here, this one has not");
    } else if (contains(looked_for, n, key)) {
        snprintf(text, bytes, "has no effect: the section has it twice, and the first one counts");
    } else if (nearest) {
        snprintf(text, bytes, "has no effect: unknown key; did you mean %s?", nearest);
    } else {
        snprintf(text, bytes, "has no effect: unknown key");
    }
}

int cmn_data_key_describe(const char *key, int again, char *text, size_t bytes)
{
    static const char *const known[] = {"classes", "train",  "valid", "labels", "names",
                                        "backup",  "top",    "tag",   "tree",   "results",
                                        "eval",    "leaves", "map",   "test"};
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

static char **added;
static int additions;

void cmn_cfg_keys_add(const char *line)
{
    added = cmn_realloc(added, (size_t)additions + 1, sizeof *added);
    added[additions++] = cmn_strdup(line);
}

const char *cmn_cfg_keys_at(int i)
{
    return i < additions ? added[i] : NULL;
}
