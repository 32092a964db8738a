#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

enum kind { WORD, NUMBER, REAL, TEXT };

struct option {
    const char *key;
    enum kind kind;
    const char *value; /* the default */
    const char *range; /* as people read it; for WORD the words in enum order, by ", " */
    double low, high;  /* NUMBER and REAL only */
    size_t at;
    const char *help;
};

#define AT(field) offsetof(struct cmn_options, field)

static const struct option table[] = {
    {"cmn_communicator", TEXT, "auto", "auto, or a name of `darknet cmn list`", 0, 0,
     AT(communicator), "strategy that sums the gradients over the ranks"},
    {"cmn_intra", WORD, "auto", "auto, shm, mpi, nccl", 0, 0, AT(intra),
     "how the ranks of one node exchange where the communicator leaves it open; auto: shm on the "
     "CPU, nccl on GPUs"},
    {"cmn_allreduce_dtype", WORD, "fp32", "fp32, fp16, bf16", 0, 0, AT(dtype),
     "what is sent of a gradient: all of it, or it rounded to 16 bits, and what was rounded off in "
     "the next step"},
    {"cmn_compress", WORD, "none", "none, topk, powersgd", 0, 0, AT(compress),
     "send a part of the gradient, and the rest in later steps: the largest values, or a matrix of "
     "low rank (docs/slow-links.md)"},
    {"cmn_compress_ratio", REAL, "0.01", "0.00001 to 0.5", 0.00001, 0.5, AT(compress_ratio),
     "part of the values that topk sends"},
    {"cmn_compress_warmup", NUMBER, "0", "0 to 1000000", 0, 1000000, AT(compress_warmup),
     "steps in which topk sends more: 8 times its ratio in the first third, then 4 times, then "
     "twice"},
    {"cmn_compress_rank", NUMBER, "4", "1 to 64", 1, 64, AT(compress_rank),
     "rank of the matrices that powersgd sends"},
    {"cmn_overlap", WORD, "auto", "auto, on, off", 0, 0, AT(overlap),
     "exchange gradients between nodes while backward goes on; auto: where measured steps are "
     "shorter for it"},
    {"cmn_bucket_mb", REAL, "0", "0 to 1024", 0, 1024, AT(bucket_mb),
     "MiB of gradients that are exchanged together when exchanges overlap; 0: found out by "
     "measuring the first steps"},
    {"cmn_double_buffering", NUMBER, "0", "0 or 1", 0, 1, AT(double_buffering),
     "1: a step's gradients are exchanged during the next step and update the weights after it: "
     "they are one step old"},
    {"cmn_local_steps", NUMBER, "1", "1 to 1000000", 1, 1000000, AT(local_steps),
     "above 1: each rank trains by itself, and weights and momentum are averaged every so many "
     "steps; with double buffering weights alone"},
    {"cmn_timeout", NUMBER, "300", "1 to 1000000", 1, 1000000, AT(timeout),
     "seconds that an exchange waits for another rank before it ends the job, over shm with that "
     "rank's name; so long the start of a job may take, too, or a minute"},
    {"cmn_share_gpus", NUMBER, "0", "0 or 1", 0, 1, AT(share_gpus),
     "1: more ranks than GPUs on a node are allowed, and share them in turn; NCCL has to be told "
     "(docs/gpu.md)"},
    {"cmn_batch", WORD, "per_rank", "per_rank, global", 0, 0, AT(batch),
     "whether the cfg's batch is that of one rank, or is divided over all ranks"},
    {"cmn_scale_lr", WORD, "none", "none, linear", 0, 0, AT(scale_lr),
     "linear: the learning rate is that of the cfg times the number of ranks (with "
     "cmn_batch=per_rank), warmed up over burn_in"},
    {"cmn_lars", REAL, "0", "0 to 1", 0, 1, AT(lars),
     "above 0: each layer's rate is this times the norm of its weights over that of its gradient "
     "(LARS); 0: off"},
    {"cmn_sync_bn", NUMBER, "0", "0 or 1", 0, 1, AT(sync_bn),
     "1: batch normalisation uses the statistics of the batches of all ranks, so that N ranks "
     "train as one with the whole "
     "batch"},
    {"cmn_epochs", NUMBER, "0", "0 to 1000000", 0, 1000000, AT(epochs),
     "end after this many passes over the list; 0: max_batches decides"},
    {"cmn_scatter", WORD, "global", "global, shard, none", 0, 0, AT(scatter),
     "one shuffled order for all ranks, a fixed part for each rank, or Darknet's drawing with "
     "replacement"},
    {"cmn_seed", NUMBER, "0", "0 to 2147483647", 0, INT_MAX, AT(seed),
     "seed of order, augmentation and first weights; 0: rank 0 draws one and logs it"},
    {"cmn_validate", NUMBER, "1", "0 to 1000000", 0, 1000000, AT(validate),
     "epochs between validations on the .data file's `valid` list; 0: never"},
    {"cmn_report", WORD, "table", "table, lines, quiet", 0, 0, AT(report),
     "table: rows and, on a terminal, a progress bar in place of Darknet's line per iteration; "
     "lines: rows and Darknet's lines; quiet: neither"},
    {"cmn_report_every", NUMBER, "0", "0 to 1000000000", 0, 1000000000, AT(report_every),
     "iterations between rows of the table; 0: one row an epoch"},
    {"cmn_json", TEXT, "", "file name", 0, 0, AT(json),
     "JSON log; empty: in the backup folder, named after the cfg"},
    {"cmn_csv", TEXT, "", "file name", 0, 0, AT(csv),
     "the rows of the table as comma-separated values; empty: none"},
    {"cmn_chart", TEXT, "", "file name", 0, 0, AT(chart),
     "picture (PNG) of loss, accuracy or mAP, learning rate and images/s, drawn anew at each row "
     "by gnuplot; empty: none"},
    {"cmn_graph", TEXT, "", "file name", 0, 0, AT(graph),
     "the network as a graph for Graphviz, written once before training; empty: none"},
    {"cmn_log", TEXT, "", "folder", 0, 0, AT(log),
     "write the output of the ranks above 0 to rank-N.log in this folder; empty: drop it"},
    {"cmn_timeline", TEXT, "", "file name", 0, 0, AT(timeline),
     "trace of all ranks for Perfetto or Chrome's DevTools (docs/timeline.md); empty: none"},
    {"cmn_timeline_steps", NUMBER, "100", "1 to 1000000", 1, 1000000, AT(timeline_steps),
     "steps that the trace holds: the latest"},
    {"cmn_cache_mb", NUMBER, "-1", "-1 to 16777216", -1, 16777216, AT(cache_mb),
     "MiB of decoded images that a rank keeps; -1: a quarter of the node's free memory, shared by "
     "its ranks; 0: none"},
    {"cmn_verify", NUMBER, "1000", "0 to 1000000000", 0, 1000000000, AT(verify),
     "iterations between comparisons of all ranks' weights, bit by bit; 0: never"},
};

enum { KEYS = sizeof table / sizeof table[0] };

_Static_assert(KEYS <= 64, "struct cmn_options.fixed has a bit for each key");

int cmn_options_count(void)
{
    return KEYS;
}

void cmn_options_row(int i, struct cmn_option_row *row)
{
    row->key = table[i].key;
    row->value = table[i].value;
    row->range = table[i].range;
    row->help = table[i].help;
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

/* The position of `value` among the words of `range`, or -1. */
static long word_index(const char *range, const char *value)
{
    size_t length = strlen(value);
    long index = 0;

    for (const char *word = range; word; index++) {
        const char *end = strchr(word, ',');
        size_t n = end ? (size_t)(end - word) : strlen(word);
        if (n == length && n > 0 && !strncmp(word, value, n)) {
            return index;
        }
        word = end ? end + 2 : NULL;
    }
    return -1;
}

static int store_real(char *field, const struct option *option, const char *value,
                      const char *where)
{
    char *end = NULL;
    double number = strtod(value, &end);

    /* Written so that NaN is refused, too. */
    if (end == value || *end || !(number >= option->low && number <= option->high)) {
        return cmn_fail("%s: %s=%s: the value must be a number, %s", where, option->key, value,
                        option->range);
    }
    memcpy(field, &number, sizeof number);
    return 0;
}

static int store(struct cmn_options *o, const struct option *option, const char *value,
                 const char *where)
{
    char *field = (char *)o + option->at;
    char *end = NULL;
    long number;

    switch (option->kind) {
    case TEXT:
        if (strlen(value) >= CMN_TEXT) {
            return cmn_fail("%s: the value of %s is longer than %d bytes", where, option->key,
                            CMN_TEXT - 1);
        }
        memcpy(field, value, strlen(value) + 1);
        return 0;
    case WORD:
        number = word_index(option->range, value);
        if (number < 0) {
            return cmn_fail("%s: %s=%s: the value must be one of: %s", where, option->key, value,
                            option->range);
        }
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
}

int cmn_options_set(struct cmn_options *o, const char *key, const char *value, int command_line)
{
    const char *where = command_line ? "command line" : "cfg";
    const struct option *option = find(key);
    const char *keys[KEYS];
    const char *nearest;

    if (option) {
        uint64_t bit = UINT64_C(1) << (option - table);
        if (!command_line && (o->fixed & bit)) {
            return 0;
        }
        o->fixed |= command_line ? bit : 0;
        return store(o, option, value, where);
    }
    for (int i = 0; i < KEYS; i++) {
        keys[i] = table[i].key;
    }
    nearest = cmn_nearest(key, keys, KEYS);
    if (nearest) {
        return cmn_fail("%s: unknown key %s: did you mean %s?", where, key, nearest);
    }
    return cmn_fail("%s: unknown key %s: `darknet cmn list` prints the keys", where, key);
}

int cmn_options_print(const struct cmn_options *o, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < KEYS && used < bytes; i++) {
        const char *field = (const char *)o + table[i].at;
        long number = 0;
        if (table[i].kind == TEXT) {
            used += (size_t)snprintf(text + used, bytes - used, "%s = %s\n", table[i].key, field);
            continue;
        }
        if (table[i].kind == REAL) {
            double real = 0;
            memcpy(&real, field, sizeof real);
            used += (size_t)snprintf(text + used, bytes - used, "%s = %.9g\n", table[i].key, real);
            continue;
        }
        if (table[i].kind == WORD) {
            used += (size_t)snprintf(text + used, bytes - used, "%s = %s\n", table[i].key,
                                     cmn_options_word(o, table[i].key));
            continue;
        }
        memcpy(&number, field, sizeof number);
        used += (size_t)snprintf(text + used, bytes - used, "%s = %ld\n", table[i].key, number);
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
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
    return word;
}
