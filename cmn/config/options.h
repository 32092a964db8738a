/* options: the keys of [net] and of the command line. One table feeds parser, help, docs and
 * tests. */
#ifndef CMN_OPTIONS_H
#define CMN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/float16.h"

enum cmn_batch_mode { CMN_BATCH_GLOBAL, CMN_BATCH_PER_RANK };
enum cmn_data_mode { CMN_DATA_SHARED, CMN_DATA_SCATTER };
enum cmn_scatter_mode { CMN_SCATTER_GLOBAL, CMN_SCATTER_SHARD, CMN_SCATTER_NONE };
enum cmn_report_mode { CMN_REPORT_TABLE, CMN_REPORT_LINES, CMN_REPORT_QUIET };

enum cmn_intra_transport { CMN_INTRA_AUTO, CMN_INTRA_MPI };
/* The algorithm of sums by messages (transports/sums.h), in the order of CMN_DEBUG_EXCHANGE's
 * words. */
enum cmn_exchange_by {
    CMN_EXCHANGE_AUTO,
    CMN_EXCHANGE_PAIRWISE,
    CMN_EXCHANGE_HALVING,
    CMN_EXCHANGE_RING
};
enum cmn_overlap_mode { CMN_OVERLAP_AUTO, CMN_OVERLAP_ON, CMN_OVERLAP_OFF };
/* The first three values are those of enum cmn_dtype. */
enum cmn_compress {
    CMN_COMPRESS_OFF = CMN_FP32,
    CMN_COMPRESS_FP16 = CMN_FP16,
    CMN_COMPRESS_BF16 = CMN_BF16,
    CMN_COMPRESS_POWERSGD
};

enum cmn_balance_mode { CMN_BALANCE_OFF, CMN_BALANCE_AUTO };
enum cmn_mixed_mode { CMN_MIXED_OFF, CMN_MIXED_BF16, CMN_MIXED_AUTO };

enum cmn_scale_lr { CMN_SCALE_NONE, CMN_SCALE_LINEAR };

enum cmn_nonfinite_mode { CMN_NONFINITE_STOP, CMN_NONFINITE_SKIP, CMN_NONFINITE_IGNORE };

enum { CMN_TEXT = 1024 };

struct cmn_options {
    char communicator[CMN_TEXT];
    long overlap;            /* enum cmn_overlap_mode */
    long compress;           /* enum cmn_compress */
    long compress_rank;      /* rank of powersgd; must follow `compress`, as one key sets both */
    long double_buffering;   /* 0, 1 */
    long local_steps;        /* 1: allreduce in every step */
    long timeout;            /* seconds */
    long batch;              /* enum cmn_batch_mode */
    long scale_lr;           /* enum cmn_scale_lr */
    double lars;             /* LARS's trust coefficient, 0: off */
    double clip;             /* largest norm of the mean gradient, 0: off */
    double ema;              /* decay of the average of the weights, 0: off */
    long sync_bn;            /* 0, 1 */
    long exact;              /* 0, 1 */
    long balance;            /* enum cmn_balance_mode */
    long mixed;              /* enum cmn_mixed_mode */
    long epochs;             /* 0: max_batches decides */
    long scatter;            /* enum cmn_scatter_mode */
    long data;               /* enum cmn_data_mode */
    long seed;               /* -1: rank 0 draws one */
    long validate;           /* epochs between validations, 0: never */
    long patience;           /* validations in a row without a better one, 0: off */
    long report;             /* enum cmn_report_mode */
    long report_every;       /* iterations between rows, 0: one row an epoch */
    char json[CMN_TEXT];     /* empty: beside the weights */
    char chart[CMN_TEXT];    /* file, empty: off */
    char events[CMN_TEXT];   /* folder of TensorBoard's event files, empty: off */
    char graph[CMN_TEXT];    /* file, empty: off */
    char log[CMN_TEXT];      /* folder for the output of ranks above 0, empty: off */
    char timeline[CMN_TEXT]; /* file[:steps], empty: off */
    long cache_mb;           /* MiB of a node; -1: a quarter of its free memory */
    char spill[CMN_TEXT];    /* folder for images beyond those in memory, empty: off */
    long verify;             /* iterations between comparisons of the weights, 0: never */
    long nonfinite;          /* enum cmn_nonfinite_mode */
    long checkpoint;         /* iterations between checkpoints, 0: none */

    /* These are no keys: cmn_options_default() takes them from CMN_DEBUG_ variables. */
    long intra;       /* enum cmn_intra_transport */
    long exchange;    /* enum cmn_exchange_by */
    double bucket_mb; /* MiB; 0: measured */

    uint64_t fixed; /* bit i: the command line set key i, which the cfg cannot change */
    uint64_t given; /* bit i: the command line or the cfg set it */
};

/* Local. Returns the type to which gradients are cast before they are sent; CMN_FP32: they are not
 * cast. */
static inline enum cmn_dtype cmn_wire_type(const struct cmn_options *o)
{
    return o->compress == CMN_COMPRESS_POWERSGD ? CMN_FP32 : (enum cmn_dtype)o->compress;
}

/* Local. Sets every key to its default, and the other fields from CMN_DEBUG_ variables. */
void cmn_options_default(struct cmn_options *o);

/* Local. Sets one key. A value from the command line stays when the cfg sets the same key later.
 * Returns 0, or -1 with a reason that gives place, key, value and range. */
int cmn_options_set(struct cmn_options *o, const char *key, const char *value, int command_line);

/* Local. Does the same for a key of the cfg at `place`: "my.cfg:7". */
int cmn_options_set_in_cfg(struct cmn_options *o, const char *key, const char *value,
                           const char *place);

/* Local. Returns whether a condition on a key holds: "key=word", "key!=word", or "key", which holds
 * unless the key has the value that turns it off. */
int cmn_options_holds(const struct cmn_options *o, const char *condition);

/* Local. Finds keys that were given but have no effect: training keys of a command that only
 * evaluates (`evaluator` is its name, or NULL), and keys without the key that they depend on. For
 * one on the command line, returns -1 with a reason. One in the cfg, which may serve several
 * commands, is only a remark of rank 0. Returns 0 otherwise. */
int cmn_options_idle(const struct cmn_options *o, const char *evaluator);

/* Local. Splits a value of cmn_timeline, FILE or FILE:STEPS: copies the file's name to `file`
 * (CMN_TEXT bytes), and returns the number of latest steps that the value asks for. Returns 100
 * without STEPS, and 0 if STEPS is not 1 to 1000000. STEPS are the digits after the last colon, if
 * only digits follow it. */
long cmn_options_timeline(const char *value, char *file);

/* Local. Writes one line "key = value\n" for each CMN_DEBUG_ variable and key, so that ranks can
 * compare them. Returns 0, or -1 with a reason if `bytes` are too few. */
int cmn_options_print(const struct cmn_options *o, char *text, size_t bytes);

/* Local. Writes the value of an existing key as text. */
void cmn_options_value(const struct cmn_options *o, const char *key, char *text, size_t bytes);

/* Local. Returns the current word of a key whose values are words, without a number after it. It
 * is valid until the thread's next call. */
const char *cmn_options_word(const struct cmn_options *o, const char *key);

/* Local. Return the number of keys in the table, and the columns of key i. The strings are
 * static. */
struct cmn_option_row {
    const char *group; /* keys of one group follow each other */
    const char *key, *value, *range, *help;
    /* condition on the key that it depends on: "key=word", "key!=word" or "key"; or NULL */
    const char *needs;
};
int cmn_options_count(void);
void cmn_options_row(int i, struct cmn_option_row *row);

#endif
