#include "config/options.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum kind { WORD, NUMBER, REAL, TEXT };

struct option {
    const char *key;
    enum kind kind;
    const char *value; /* the default */
    const char *range; /* as people read it; for WORD the words in enum order, by ", " */
    double low, high;  /* NUMBER and REAL only */
    size_t at;
    const char *help;
    int evaluates; /* what only evaluates uses it, too */
    const char *
        needs; /* NULL, or what must hold for it to do anything: "key=word", "key!=word", or "key" for any
                          value but none */
};

#define AT(field) offsetof(struct cmn_options, field)

static const struct option table[] = {
    {"cmn_communicator", TEXT, "auto", "auto, or a name of `darknet cmn list`", 0, 0,
     AT(communicator), "strategy that sums the gradients over the ranks", 1, NULL},
    {"cmn_intra", WORD, "auto", "auto, shm, mpi, nccl", 0, 0, AT(intra),
     "how the ranks of one node exchange where the communicator leaves it open; auto: shm on the "
     "CPU, nccl on GPUs",
     1, NULL},
    {"cmn_allreduce_dtype", WORD, "fp32", "fp32, fp16, bf16", 0, 0, AT(dtype),
     "what is sent of a gradient: all of it, or it rounded to 16 bits, and what was rounded off in "
     "the next step",
     0, NULL},
    {"cmn_compress", WORD, "none", "none, topk, powersgd", 0, 0, AT(compress),
     "send a part of the gradient, and the rest in later steps: the largest values, or a matrix of "
     "low rank (docs/slow-links.md)",
     0, NULL},
    {"cmn_compress_ratio", REAL, "0.01", "0.00001 to 0.5", 0.00001, 0.5, AT(compress_ratio),
     "part of the values that topk sends", 0, "cmn_compress=topk"},
    {"cmn_compress_warmup", NUMBER, "0", "0 to 1000000", 0, 1000000, AT(compress_warmup),
     "steps in which topk sends more: 8 times its ratio in the first third, then 4 times, then "
     "twice",
     0, "cmn_compress=topk"},
    {"cmn_compress_rank", NUMBER, "4", "1 to 64", 1, 64, AT(compress_rank),
     "rank of the matrices that powersgd sends", 0, "cmn_compress=powersgd"},
    {"cmn_overlap", WORD, "auto", "auto, on, off", 0, 0, AT(overlap),
     "exchange gradients between nodes while backward goes on; auto: where measured steps are "
     "shorter for it",
     0, NULL},
    {"cmn_bucket_mb", REAL, "0", "0 to 1024", 0, 1024, AT(bucket_mb),
     "MiB of gradients that are exchanged together when exchanges overlap; 0: found out by "
     "measuring the first steps",
     0, "cmn_overlap!=off"},
    {"cmn_double_buffering", NUMBER, "0", "0 or 1", 0, 1, AT(double_buffering),
     "1: a step's gradients are exchanged during the next step and update the weights after it: "
     "they are one step old",
     0, NULL},
    {"cmn_local_steps", NUMBER, "1", "1 to 1000000", 1, 1000000, AT(local_steps),
     "above 1: each rank trains by itself, and weights and momentum are averaged every so many "
     "steps; with double buffering weights alone",
     0, NULL},
    {"cmn_timeout", NUMBER, "300", "1 to 1000000", 1, 1000000, AT(timeout),
     "seconds without progress of a rank that waits for no other: then the job says which one, "
     "where it is and where the others wait, and ends with status 75; so long the start of MPI "
     "may take, too, or a minute",
     1, NULL},
    {"cmn_share_gpus", NUMBER, "0", "0 or 1", 0, 1, AT(share_gpus),
     "1: more ranks than GPUs on a node are allowed, and share them in turn; NCCL has to be told "
     "(docs/gpu.md)",
     1, NULL},
    {"cmn_batch", WORD, "per_rank", "per_rank, global", 0, 0, AT(batch),
     "whether the cfg's batch is that of one rank, or is divided over all ranks", 0, NULL},
    {"cmn_scale_lr", WORD, "none", "none, linear", 0, 0, AT(scale_lr),
     "linear: the learning rate is that of the cfg times the number of ranks (with "
     "cmn_batch=per_rank), warmed up over burn_in",
     0, NULL},
    {"cmn_lars", REAL, "0", "0 to 1", 0, 1, AT(lars),
     "above 0: each layer's rate is this times the norm of its weights over that of its gradient "
     "(LARS); 0: off",
     0, NULL},
    {"cmn_sync_bn", NUMBER, "0", "0 or 1", 0, 1, AT(sync_bn),
     "1: batch normalisation uses the statistics of the batches of all ranks, so that N ranks "
     "train as one with the whole "
     "batch",
     0, NULL},
    {"cmn_epochs", NUMBER, "0", "0 to 1000000", 0, 1000000, AT(epochs),
     "end after this many passes over the list; 0: max_batches decides", 0, NULL},
    {"cmn_scatter", WORD, "global", "global, shard, none", 0, 0, AT(scatter),
     "one shuffled order for all ranks, a fixed part for each rank, or Darknet's drawing with "
     "replacement",
     0, NULL},
    {"cmn_seed", NUMBER, "0", "0 to 2147483647", 0, INT_MAX, AT(seed),
     "seed of order, augmentation and first weights; 0: rank 0 draws one and logs it", 1, NULL},
    {"cmn_validate", NUMBER, "1", "0 to 1000000", 0, 1000000, AT(validate),
     "epochs between validations on the .data file's `valid` list; 0: never", 0, NULL},
    {"cmn_report", WORD, "table", "table, lines, quiet", 0, 0, AT(report),
     "table: rows and, on a terminal, a progress bar in place of Darknet's line per iteration; "
     "lines: rows and Darknet's lines; quiet: neither",
     1, NULL},
    {"cmn_report_every", NUMBER, "0", "0 to 1000000000", 0, 1000000000, AT(report_every),
     "iterations between rows of the table; 0: one row an epoch", 0, NULL},
    {"cmn_json", TEXT, "", "file name", 0, 0, AT(json),
     "JSON log; empty: in the backup folder, named after the cfg", 0, NULL},
    {"cmn_csv", TEXT, "", "file name", 0, 0, AT(csv),
     "the rows of the table as comma-separated values; empty: none", 0, NULL},
    {"cmn_chart", TEXT, "", "file name", 0, 0, AT(chart),
     "picture (PNG) of loss, accuracy or mAP, learning rate and images/s, drawn anew at each row "
     "by gnuplot; empty: none",
     0, NULL},
    {"cmn_graph", TEXT, "", "file name", 0, 0, AT(graph),
     "the network as a graph for Graphviz, written once before training; empty: none", 0, NULL},
    {"cmn_log", TEXT, "", "folder", 0, 0, AT(log),
     "write the output of the ranks above 0 to rank-N.log in this folder; empty: drop it", 1, NULL},
    {"cmn_timeline", TEXT, "", "file name", 0, 0, AT(timeline),
     "trace of all ranks for Perfetto or Chrome's DevTools (docs/timeline.md); empty: none", 0,
     NULL},
    {"cmn_timeline_steps", NUMBER, "100", "1 to 1000000", 1, 1000000, AT(timeline_steps),
     "steps that the trace holds: the latest", 0, "cmn_timeline"},
    {"cmn_cache_mb", NUMBER, "-1", "-1 to 16777216", -1, 16777216, AT(cache_mb),
     "MiB of decoded images that a rank keeps; -1: a quarter of the node's free memory, shared by "
     "its ranks; 0: none",
     1, NULL},
    {"cmn_verify", NUMBER, "1000", "0 to 1000000000", 0, 1000000000, AT(verify),
     "iterations between comparisons of all ranks' weights, bit by bit; 0: never", 0, NULL},
    {"cmn_nonfinite", WORD, "stop", "stop, skip, ignore", 0, 0, AT(nonfinite),
     "a loss or gradient that is NaN or infinite: end the job and name rank, layer and images; "
     "leave "
     "the step out on all ranks; or go on as Darknet does",
     0, NULL},
    {"cmn_checkpoint", NUMBER, "0", "0 to 1000000000", 0, 1000000000, AT(checkpoint),
     "iterations between checkpoints, from which the same command goes on by itself (-clear starts "
     "over); 0: none",
     0, NULL},
    {"cmn_checkpoint_keep", NUMBER, "2", "1 to 1000", 1, 1000, AT(checkpoint_keep),
     "so many of the latest checkpoints stay in the backup folder", 0, "cmn_checkpoint"},
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
        o->given |= bit;
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

/* Whether what an option needs holds. */
static int holds(const struct cmn_options *o, const char *needs)
{
    size_t length = strcspn(needs, "!=");
    const char *want = needs + length + strspn(needs + length, "!=");
    const struct option *option = NULL;
    const char *field;
    long number;

    for (int i = 0; i < KEYS; i++) {
        if (!strncmp(table[i].key, needs, length) && !table[i].key[length]) {
            option = &table[i];
        }
    }
    if (!option) {
        return 1;
    }
    field = (const char *)o + option->at;
    if (option->kind == WORD) {
        return !strcmp(cmn_options_word(o, option->key), want) == (needs[length] == '=');
    }
    memcpy(&number, field, sizeof number);
    return option->kind == TEXT ? field[0] != '\0' : number != 0;
}

int cmn_options_idle(const struct cmn_options *o, const char *evaluator)
{
    for (int i = 0; i < KEYS; i++) {
        uint64_t bit = UINT64_C(1) << i;
        const struct option *option = &table[i];
        if (evaluator && !option->evaluates && (o->fixed & bit)) {
            return cmn_fail("command line: %s: %s trains nothing, and this key does nothing else: "
                            "leave it away",
                            option->key, evaluator);
        }
        if (evaluator || !option->needs || !(o->given & bit) || holds(o, option->needs)) {
            continue;
        }
        if (o->fixed & bit) {
            return cmn_fail("command line: %s does nothing without %s: leave it away, or add that",
                            option->key, option->needs);
        }
        cmn_say("%s in the cfg does nothing here: it needs %s", option->key, option->needs);
    }
    return 0;
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
