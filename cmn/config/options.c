#include "config/options.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/debug.h"
#include "base/log.h"

/* WORD_OR_RANK is like WORD, but the final word of `range` may be followed by a colon and a whole
 * number from `low` to `high`, which goes to the field after the word's. */
enum kind { WORD, WORD_OR_RANK, SWITCH, NUMBER, REAL, TEXT };

enum { DEFAULT_RANK = 4 };

struct option {
    const char *group, *key;
    enum kind kind;
    const char *value; /* the default */
    /* The allowed values, for people. For WORD, the words in enum order, separated by ", "; the
     * last one of WORD_OR_RANK is followed by "[:low-high]". For NUMBER and REAL it may end with ",
     * or WORD", which means `low`. Names of files and folders are off if they are empty. */
    const char *range;
    double low, high; /* of numbers only */
    size_t at;
    const char *help;
    int evaluates; /* commands that only evaluate use the key as well */
    /* The condition under which the key has an effect, or NULL: "key=word", "key!=word", or "key"
     * (set). */
    const char *needs;
};

#define AT(field) offsetof(struct cmn_options, field)

/* The keys of one group follow each other. A range of numbers names their unit. */
static const char batch[] = "Batch and schedule", exchange[] = "Exchange", data[] = "Data",
                  reports[] = "Reports", safety[] = "Safety and restart";

static const struct option table[] = {
    {batch, "cmn_batch", WORD, "global", "global, per_rank", 0, 0, AT(batch),
     "what the cfg's batch counts; global: the images of all ranks in a step; per_rank: those of "
     "each rank",
     0, NULL},
    {batch, "cmn_scale_lr", WORD, "off", "off, linear", 0, 0, AT(scale_lr),
     "linear: multiply the learning rate by the number of ranks (with cmn_batch=per_rank); set "
     "burn_in to warm it up",
     0, NULL},
    {batch, "cmn_lars", REAL, "off", "0 to 1 (factor), or off", 0, 1, AT(lars),
     "LARS with this trust coefficient: each layer's learning rate follows the norm of its weights "
     "over that of its gradient",
     0, NULL},
    {batch, "cmn_clip", REAL, "off", "0 to 1000000000 (L2 norm), or off", 0, 1e9, AT(clip),
     "limit the L2 norm of a step's mean gradient to this (as PyTorch's clip_grad_norm_)", 0, NULL},
    {batch, "cmn_ema", REAL, "off", "0 to 0.999999 (decay of a step), or off", 0, 0.999999, AT(ema),
     "exponential moving average of the weights, which is validated in their place and saved in "
     "NAME_ema.weights (docs/use/evaluation.md)",
     0, NULL},
    {batch, "cmn_sync_bn", SWITCH, "off", "off, on", 0, 0, AT(sync_bn),
     "on: batch normalisation uses the statistics of all ranks' images", 0, NULL},
    {batch, "cmn_exact", SWITCH, "off", "off, on", 0, 0, AT(exact),
     "on: any number of ranks trains the same bits (docs/use/exactness.md)", 0, NULL},
    {batch, "cmn_balance", WORD, "off", "off, auto", 0, 0, AT(balance),
     "auto: faster ranks take more of a step's micro-batches (docs/use/exactness.md)", 0,
     "cmn_exact=on"},
    {batch, "cmn_mixed", WORD, "off", "off, bf16, auto", 0, 0, AT(mixed),
     "bf16: compute convolutions, and on processors the layers between them, in bf16; auto: on "
     "processors, if that is measured to be faster (docs/use/speed.md)",
     0, NULL},
    {batch, "cmn_epochs", NUMBER, "off", "0 to 1000000 epochs, or off", 0, 1000000, AT(epochs),
     "end after this many passes over the training list; off: max_batches decides", 0, NULL},
    {batch, "cmn_validate", NUMBER, "1", "0 to 1000000 epochs, or off", 0, 1000000, AT(validate),
     "epochs between validations on the .data file's `valid` list; NAME_best.weights keeps the "
     "best; off: none",
     0, NULL},
    {batch, "cmn_patience", NUMBER, "off", "0 to 1000000 validations, or off", 0, 1000000,
     AT(patience), "end after this many validations in a row without a better accuracy or mAP", 0,
     "cmn_validate"},

    {exchange, "cmn_communicator", TEXT, "auto", "auto, or a name of `darknet cmn list`", 0, 0,
     AT(communicator), "how gradients are summed over the ranks; auto: the fastest way here", 1,
     NULL},
    {exchange, "cmn_compress", WORD_OR_RANK, "off", "off, fp16, bf16, powersgd[:1-64]", 1, 64,
     AT(compress),
     "what nodes send each other; fp16, bf16: 16 bits for each number; powersgd: two low-rank "
     "factors of each matrix, of rank 4 or the one after the colon (docs/use/speed.md)",
     0, NULL},
    {exchange, "cmn_overlap", WORD, "auto", "auto, on, off", 0, 0, AT(overlap),
     "overlap the allreduce between nodes with the backward pass; auto: where that is measured to "
     "be faster",
     0, NULL},
    {exchange, "cmn_double_buffering", SWITCH, "off", "off, on", 0, 0, AT(double_buffering),
     "on: a step's allreduce runs during the next step, so gradients are one step late", 0, NULL},
    {exchange, "cmn_local_steps", NUMBER, "off", "1 to 1000000 steps, or off", 1, 1000000,
     AT(local_steps),
     "local SGD: each rank trains alone for this many steps, then weights and momentum are "
     "averaged (with double buffering only the weights)",
     0, NULL},

    {data, "cmn_scatter", WORD, "global", "global, shard, none", 0, 0, AT(scatter),
     "order of the training list; global: one shuffled order for all ranks; shard: a fixed shard "
     "for each rank; none: Darknet's drawing with replacement",
     0, NULL},
    {data, "cmn_data", WORD, "shared", "shared, scatter", 0, 0, AT(data),
     "where images and labels lie; shared: on every host; scatter: on rank 0's host, and the "
     "others get what they lack into cmn_cache_dir (classifiers and detectors)",
     0, NULL},
    {data, "cmn_seed", NUMBER, "auto", "0 to 2147483647, or auto", -1, INT_MAX, AT(seed),
     "seed of order, augmentation and first weights; auto: rank 0 draws one and logs it", 1, NULL},
    {data, "cmn_cache_mb", NUMBER, "auto", "0 to 16777216 MiB, or auto", -1, 16777216, AT(cache_mb),
     "decoded images in memory that the ranks of a node share; auto: a quarter of its free memory; "
     "0: none",
     1, NULL},
    {data, "cmn_cache_dir", TEXT, "off", "folder, or off", 0, 0, AT(spill),
     "folder on each host for decoded images that cmn_cache_mb has no room for (at most half of "
     "what is free there), and for what cmn_data=scatter sends",
     1, NULL},

    {reports, "cmn_report", WORD, "table", "table, lines, quiet", 0, 0, AT(report),
     "table: rows and a progress bar; lines: rows, times of the ranks below each, and Darknet's "
     "lines; quiet: neither",
     1, NULL},
    {reports, "cmn_report_every", NUMBER, "auto", "0 to 1000000000 iterations, or auto", 0,
     1000000000, AT(report_every), "iterations between rows of the table; auto: one row an epoch",
     0, NULL},
    {reports, "cmn_json", TEXT, "", "file name", 0, 0, AT(json),
     "JSON log; empty: in the backup folder, named after the cfg", 0, NULL},
    {reports, "cmn_chart", TEXT, "off", "file name, or off", 0, 0, AT(chart),
     "PNG chart of loss, accuracy or mAP, learning rate and images/s, by gnuplot", 0, NULL},
    {reports, "cmn_tensorboard", TEXT, "off", "folder, or off", 0, 0, AT(events),
     "event file for TensorBoard in this folder", 0, NULL},
    {reports, "cmn_graph", TEXT, "off", "file name, or off", 0, 0, AT(graph),
     "the network as a graph for Graphviz", 0, NULL},
    {reports, "cmn_timeline", TEXT, "off", "file name[:steps], or off", 0, 0, AT(timeline),
     "trace of all ranks for Perfetto or Chrome's DevTools (docs/use/reports.md): the latest 100 "
     "steps, or as many as are given",
     0, NULL},
    {reports, "cmn_rank_logs", TEXT, "off", "folder, or off", 0, 0, AT(log),
     "append the output of ranks above 0 to rank-N.log in this existing folder; off: discard it", 1,
     NULL},

    {safety, "cmn_checkpoint", NUMBER, "off", "0 to 1000000000 iterations, or off", 0, 1000000000,
     AT(checkpoint),
     "iterations between checkpoints, from which the same command resumes (-clear starts over)", 0,
     NULL},
    {safety, "cmn_nonfinite", WORD, "stop", "stop, skip, ignore", 0, 0, AT(nonfinite),
     "when a loss or gradient is NaN or infinite; stop: name rank, layer and images, and end; "
     "skip: leave the step out; ignore: continue as Darknet does",
     0, NULL},
    {safety, "cmn_verify", NUMBER, "1000", "0 to 1000000000 iterations, or off", 0, 1000000000,
     AT(verify), "iterations between comparisons of all ranks' weights, bit by bit", 0, NULL},
    {safety, "cmn_timeout", NUMBER, "300", "1 to 1000000 seconds", 1, 1000000, AT(timeout),
     "seconds without progress after which a rank counts as stalled, and the job ends with status "
     "75; also the limit of MPI's start, which is at least 60 seconds",
     1, NULL},
};

enum { KEYS = sizeof table / sizeof table[0] };

/* Keys of versions before 1.0, and values as KEY=VALUE, with what replaces them, or "remove it" and
 * a reason. NULL: nothing replaces the key. */
static const struct {
    const char *key, *instead;
} removed[] = {
    {"cmn_log", "cmn_rank_logs"},
    {"cmn_outlier", NULL},
    {"cmn_best", "remove it, as NAME_best.weights is always kept"},
    {"cmn_checkpoint_keep", NULL},
    {"cmn_timeline_steps", "cmn_timeline=FILE:STEPS"},
    {"cmn_csv", "the JSON log, of which one line of jq makes CSV (docs/use/reports.md)"},
    {"cmn_compress_ratio", "cmn_compress=powersgd"},
    {"cmn_compress_warmup", "cmn_compress=powersgd"},
    {"cmn_compress=topk", "cmn_compress=powersgd"},
    {"cmn_topk_ratio", "cmn_compress=powersgd"},
    {"cmn_topk_warmup", "cmn_compress=powersgd"},
    {"cmn_compress_rank", "cmn_compress=powersgd:RANK"},
    {"cmn_powersgd_rank", "cmn_compress=powersgd:RANK"},
    {"cmn_allreduce_dtype", "cmn_compress=fp16 or bf16"},
    {"cmn_bucket_mb", NULL},
    {"cmn_exchange", NULL},
    {"cmn_intra", NULL},
    {"cmn_onednn", "a program built with ONEDNN=0 to compute without oneDNN"},
    {"cmn_tf32", "NVIDIA_TF32_OVERRIDE=0 in the environment (docs/use/gpu.md)"},
    {"cmn_share_gpus", "no more ranks on a node than it has GPUs"},
    {"cmn_data=root", "cmn_data=scatter, with cmn_cache_dir"},
};

_Static_assert(KEYS <= 64, "struct cmn_options.fixed has a bit for each key");

int cmn_options_count(void)
{
    return KEYS;
}

void cmn_options_row(int i, struct cmn_option_row *row)
{
    row->group = table[i].group;
    row->key = table[i].key;
    row->value = table[i].value;
    row->range = table[i].range;
    row->help = table[i].help;
    row->needs = table[i].needs;
}

static const struct option *find(const char *key)
{
    for (int i = 0; i < KEYS; i++) {
        if (!strcmp(table[i].key, key)) {
            return &table[i];
        }
    }
    return NULL;
}

/* Returns the position, among the words of `range`, of the word `value` of `length` characters; -1
 * if there is none. */
static long word_index(const char *range, const char *value, size_t length)
{
    long index = 0;

    for (const char *word = range; word; index++) {
        const char *end = strchr(word, ',');
        size_t n = strcspn(word, ",[");
        if (n == length && n > 0 && !strncmp(word, value, n)) {
            return index;
        }
        word = end ? end + 2 : NULL;
    }
    return -1;
}

static int has_words(const struct option *option)
{
    return option->kind == WORD || option->kind == WORD_OR_RANK || option->kind == SWITCH;
}

/* Returns whether word `index` of the option may have a number after it. */
static int has_rank(const struct option *option, long index)
{
    const char *last = strrchr(option->range, ',') + 2;

    return option->kind == WORD_OR_RANK &&
           index == word_index(option->range, last, strcspn(last, "["));
}

/* Returns the word at the end of a range of numbers (", or WORD"), or NULL. */
static const char *number_word(const struct option *option)
{
    static const char before[] = ", or ";
    int is_number = option->kind == NUMBER || option->kind == REAL;
    const char *at = is_number ? strstr(option->range, before) : NULL;

    return at ? at + sizeof before - 1 : NULL;
}

/* Darknet's cfgs write switches as 0 and 1. */
static const char *as_word(const struct option *option, const char *value)
{
    if (option->kind == SWITCH) {
        return !strcmp(value, "0") ? "off" : !strcmp(value, "1") ? "on" : value;
    }
    return value;
}

static int store_real(char *field, const struct option *option, const char *value,
                      const char *where)
{
    char *end = NULL;
    double number = strtod(value, &end);

    /* The comparison is written so that NaN fails, too. */
    if (end == value || *end || !(number >= option->low && number <= option->high)) {
        return cmn_fail("%s: %s=%s: the value must be a number, %s", where, option->key, value,
                        option->range);
    }
    memcpy(field, &number, sizeof number);
    return 0;
}

static void store_word(char *field, const struct option *option)
{
    long number = (long)option->low;

    if (option->kind == REAL) {
        memcpy(field, &option->low, sizeof option->low);
    } else {
        memcpy(field, &number, sizeof number);
    }
}

long cmn_options_timeline(const char *value, char *file)
{
    const char *colon = strrchr(value, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    long steps;

    snprintf(file, CMN_TEXT, "%s", value);
    if (!digits || colon[1 + digits] || colon == value) {
        return 100;
    }
    file[colon - value] = '\0';
    steps = digits <= 7 ? strtol(colon + 1, NULL, 10) : 0;
    return steps <= 1000000 ? steps : 0;
}

static int store_text(char *field, const struct option *option, const char *value,
                      const char *where)
{
    const char *range = option->range;
    int is_name = !strncmp(range, "file name", 9) || !strncmp(range, "folder", 6);
    int is_off = !strcmp(value, "off");
    char file[CMN_TEXT];

    if (strlen(value) >= CMN_TEXT) {
        return cmn_fail("%s: the value of %s is longer than %d bytes", where, option->key,
                        CMN_TEXT - 1);
    }
    if (is_name && is_off && strstr(range, ", or off")) {
        value = "";
    } else if (is_name && (is_off || !strcmp(value, "on"))) {
        return cmn_fail("%s: %s=%s: the value must be a %s; write ./%s for one of this name", where,
                        option->key, value, range, value);
    }
    if (option->at == AT(timeline) && !cmn_options_timeline(value, file)) {
        return cmn_fail("%s: %s=%s: the value must be a %s, with 1 to 1000000 steps", where,
                        option->key, value, range);
    }
    memcpy(field, value, strlen(value) + 1);
    return 0;
}

/* Returns the key, other than `option`, that has this word and is not a switch; NULL if there is
 * none. */
static const char *key_of_word(const struct option *option, const char *value)
{
    if (!strcmp(value, "on") || !strcmp(value, "off") || !strcmp(value, "auto")) {
        return NULL;
    }
    for (int i = 0; i < KEYS; i++) {
        if (table[i].kind != SWITCH && has_words(&table[i]) && &table[i] != option &&
            word_index(table[i].range, value, strlen(value)) >= 0) {
            return table[i].key;
        }
    }
    return NULL;
}

/* Writes the word's position to *number and returns 0, or returns -1 with a reason. */
static int read_word(const struct option *option, const char *value, const char *where,
                     long *number)
{
    const char *word = as_word(option, value), *other;

    *number = word_index(option->range, word, strlen(word));
    if (*number >= 0) {
        return 0;
    }
    other = key_of_word(option, value);
    return cmn_fail("%s: %s=%s: the value must be one of: %s%s%s%s", where, option->key, value,
                    option->range, other ? "; did you mean " : "", other ? other : "",
                    other ? "?" : "");
}

/* Does the same as read_word(), and sets *rank to the number after the word, or to the default. */
static int read_word_or_rank(const struct option *option, const char *value, const char *where,
                             long *number, long *rank)
{
    const char *colon = strchr(value, ':');
    char *end = NULL;

    *rank = DEFAULT_RANK;
    if (!colon) {
        return read_word(option, value, where, number);
    }
    *number = word_index(option->range, value, (size_t)(colon - value));
    *rank = strtol(colon + 1, &end, 10);
    if (!has_rank(option, *number) || !strchr("123456789", colon[1]) || !colon[1] || *end ||
        (double)*rank < option->low || (double)*rank > option->high) {
        return cmn_fail("%s: %s=%s: the value must be one of: %s", where, option->key, value,
                        option->range);
    }
    return 0;
}

static int store(struct cmn_options *o, const struct option *option, const char *value,
                 const char *where)
{
    char *field = (char *)o + option->at;
    const char *word = number_word(option);
    char *end = NULL;
    long number, rank;

    if (word && !strcmp(value, word)) {
        store_word(field, option);
        return 0;
    }
    switch (option->kind) {
    case TEXT:
        return store_text(field, option, value, where);
    case WORD:
    case SWITCH:
        if (read_word(option, value, where, &number)) {
            return -1;
        }
        break;
    case WORD_OR_RANK:
        if (read_word_or_rank(option, value, where, &number, &rank)) {
            return -1;
        }
        memcpy(field + sizeof number, &rank, sizeof rank);
        break;
    case REAL:
        return store_real(field, option, value, where);
    default:
        errno = 0;
        number = strtol(value, &end, 10);
        if (end == value || *end || errno || (double)number < option->low ||
            (double)number > option->high) {
            return cmn_fail("%s: %s=%s: the value must be a whole number, %s", where, option->key,
                            value, option->range);
        }
    }
    memcpy(field, &number, sizeof number);
    return 0;
}

void cmn_options_default(struct cmn_options *o)
{
    memset(o, 0, sizeof *o);
    for (int i = 0; i < KEYS; i++) {
        store(o, &table[i], table[i].value, "default");
    }
    o->intra = cmn_debug_word("INTRA");
    o->exchange = cmn_debug_word("EXCHANGE");
    o->bucket_mb = cmn_debug_number("BUCKET_MB");
}

/* Returns 0, or -1 with a reason if this key, or this value of it, was removed. */
static int refuse_removed(const char *key, const char *value, const char *where)
{
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++) {
        const char *was = removed[i].key, *instead = removed[i].instead;
        size_t n = strcspn(was, "=");
        if (!strncmp(key, was, n) && !key[n] && (!was[n] || !strcmp(value, was + n + 1))) {
            instead = instead ? instead : "remove it";
            return cmn_fail("%s: %s is no longer a %s: %s%s", where, was, was[n] ? "value" : "key",
                            strncmp(instead, "remove", 6) ? "use " : "", instead);
        }
    }
    return 0;
}

static int set(struct cmn_options *o, const char *key, const char *value, int command_line,
               const char *where)
{
    /* With this prefix, distant words would look near. */
    static const size_t prefix = sizeof "cmn_" - 1;
    const struct option *option = find(key);
    const char *keys[KEYS];
    const char *nearest = NULL;

    if (option) {
        uint64_t bit = UINT64_C(1) << (option - table);
        if (!command_line && (o->fixed & bit)) {
            return 0;
        }
        o->fixed |= command_line ? bit : 0;
        o->given |= bit;
        return refuse_removed(key, value, where) ? -1 : store(o, option, value, where);
    }
    for (int i = 0; i < KEYS; i++) {
        keys[i] = table[i].key + prefix;
    }
    if (refuse_removed(key, value, where)) {
        return -1;
    }
    if (!strncmp(key, "cmn_", prefix)) {
        nearest = cmn_nearest(key + prefix, keys, KEYS);
    }
    if (nearest) {
        return cmn_fail("%s: unknown key %s: did you mean cmn_%s?", where, key, nearest);
    }
    return cmn_fail("%s: unknown key %s: `darknet cmn list` prints the keys", where, key);
}

int cmn_options_set(struct cmn_options *o, const char *key, const char *value, int command_line)
{
    return set(o, key, value, command_line, command_line ? "command line" : "cfg");
}

int cmn_options_set_in_cfg(struct cmn_options *o, const char *key, const char *value,
                           const char *place)
{
    return set(o, key, value, 0, place);
}

int cmn_options_holds(const struct cmn_options *o, const char *condition)
{
    size_t length = strcspn(condition, "!=");
    const char *want = condition + length + strspn(condition + length, "!=");
    const struct option *option = NULL;
    const char *field;
    double real;
    long number;

    for (int i = 0; i < KEYS; i++) {
        if (!strncmp(table[i].key, condition, length) && !table[i].key[length]) {
            option = &table[i];
        }
    }
    if (!option) {
        return 0;
    }
    field = (const char *)o + option->at;
    if (has_words(option)) {
        return !strcmp(cmn_options_word(o, option->key), want) == (condition[length] == '=');
    }
    switch (option->kind) {
    case TEXT:
        return field[0] != '\0';
    case REAL:
        memcpy(&real, field, sizeof real);
        return real > option->low;
    default:
        memcpy(&number, field, sizeof number);
        return (double)number > option->low;
    }
}

int cmn_options_idle(const struct cmn_options *o, const char *evaluator)
{
    for (int i = 0; i < KEYS; i++) {
        uint64_t bit = UINT64_C(1) << i;
        const struct option *option = &table[i];
        if (evaluator && !option->evaluates && (o->fixed & bit)) {
            return cmn_fail("command line: %s has no effect: %s trains nothing; remove the key",
                            option->key, evaluator);
        }
        if (evaluator || !option->needs || !(o->given & bit) ||
            cmn_options_holds(o, option->needs)) {
            continue;
        }
        if (o->fixed & bit) {
            return cmn_fail("command line: %s has no effect without %s: remove it, or add that",
                            option->key, option->needs);
        }
        cmn_say("%s in the cfg has no effect here: it needs %s", option->key, option->needs);
    }
    return 0;
}

static void print_value(const struct cmn_options *o, const struct option *option, char *text,
                        size_t bytes)
{
    const char *field = (const char *)o + option->at;
    const char *word = number_word(option);
    double real;
    long number, rank;
    int used;

    switch (option->kind) {
    case TEXT:
        snprintf(text, bytes, "%s", field);
        break;
    case REAL:
        memcpy(&real, field, sizeof real);
        if (word && !(real < option->low) && !(real > option->low)) {
            snprintf(text, bytes, "%s", word);
        } else {
            snprintf(text, bytes, "%.9g", real);
        }
        break;
    case WORD:
    case SWITCH:
        snprintf(text, bytes, "%s", cmn_options_word(o, option->key));
        break;
    case WORD_OR_RANK:
        memcpy(&number, field, sizeof number);
        memcpy(&rank, field + sizeof number, sizeof rank);
        used = snprintf(text, bytes, "%s", cmn_options_word(o, option->key));
        if (has_rank(option, number)) {
            snprintf(text + used, bytes - (size_t)used, ":%ld", rank);
        }
        break;
    default:
        memcpy(&number, field, sizeof number);
        if (word && (double)number == option->low) {
            snprintf(text, bytes, "%s", word);
        } else {
            snprintf(text, bytes, "%ld", number);
        }
        break;
    }
}

void cmn_options_value(const struct cmn_options *o, const char *key, char *text, size_t bytes)
{
    print_value(o, find(key), text, bytes);
}

int cmn_options_print(const struct cmn_options *o, char *text, size_t bytes)
{
    char value[CMN_TEXT];
    size_t used;

    if (cmn_debug_print(text, bytes)) {
        return -1;
    }
    used = strlen(text);
    for (int i = 0; i < KEYS && used < bytes; i++) {
        print_value(o, &table[i], value, sizeof value);
        used += (size_t)snprintf(text + used, bytes - used, "%s = %s\n", table[i].key, value);
    }
    return used < bytes ? 0 : cmn_fail("the keys' values are too long to be compared");
}

const char *cmn_options_word(const struct cmn_options *o, const char *key)
{
    static _Thread_local char word[32];
    const struct option *option = find(key);
    const char *at = option->range;
    long index = 0;

    memcpy(&index, (const char *)o + option->at, sizeof index);
    while (index-- > 0) {
        at = strchr(at, ',') + 2;
    }
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ",["), at);
    return word;
}
