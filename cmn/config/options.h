/* The keys of [net] and of the command line: one table feeds parser, help, docs and tests. */
#ifndef CMN_OPTIONS_H
#define CMN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cmn_batch_mode { CMN_BATCH_PER_RANK, CMN_BATCH_GLOBAL };
enum cmn_scatter_mode { CMN_SCATTER_GLOBAL, CMN_SCATTER_SHARD, CMN_SCATTER_NONE };
enum cmn_report_mode { CMN_REPORT_TABLE, CMN_REPORT_LINES, CMN_REPORT_QUIET };

enum cmn_intra_transport { CMN_INTRA_AUTO, CMN_INTRA_SHM, CMN_INTRA_MPI, CMN_INTRA_NCCL };
enum cmn_dtype { CMN_FP32, CMN_FP16, CMN_BF16 };
enum cmn_overlap_mode { CMN_OVERLAP_AUTO, CMN_OVERLAP_ON, CMN_OVERLAP_OFF };
enum cmn_compress { CMN_COMPRESS_NONE, CMN_COMPRESS_TOPK, CMN_COMPRESS_POWERSGD };

enum cmn_scale_lr { CMN_SCALE_NONE, CMN_SCALE_LINEAR };

enum cmn_nonfinite_mode { CMN_NONFINITE_STOP, CMN_NONFINITE_SKIP, CMN_NONFINITE_IGNORE };

enum { CMN_TEXT = 1024 };

struct cmn_options {
    char communicator[CMN_TEXT];
    long intra;       /* enum cmn_intra_transport */
    long dtype;       /* enum cmn_dtype */
    long overlap;     /* enum cmn_overlap_mode */
    double bucket_mb; /* MiB; 0: found out by measuring */
    long compress;    /* enum cmn_compress */
    double compress_ratio;
    long compress_warmup; /* steps */
    long compress_rank;
    long double_buffering;   /* 0, 1 */
    long local_steps;        /* 1: gradients are summed in every step */
    long timeout;            /* seconds */
    long share_gpus;         /* 0, 1 */
    long batch;              /* enum cmn_batch_mode */
    long scale_lr;           /* enum cmn_scale_lr */
    double lars;             /* trust coefficient, 0: off */
    long sync_bn;            /* 0, 1 */
    long epochs;             /* 0: max_batches decides */
    long scatter;            /* enum cmn_scatter_mode */
    long seed;               /* 0: rank 0 draws one */
    long validate;           /* epochs between validations, 0: never */
    long report;             /* enum cmn_report_mode */
    long report_every;       /* iterations between rows, 0: one row an epoch */
    char json[CMN_TEXT];     /* empty: beside the weights */
    char csv[CMN_TEXT];      /* file, empty: none */
    char chart[CMN_TEXT];    /* file, empty: none */
    char graph[CMN_TEXT];    /* file, empty: none */
    char log[CMN_TEXT];      /* folder of the other ranks' output, empty: none */
    char timeline[CMN_TEXT]; /* file, empty: none */
    long timeline_steps;     /* the latest so many are kept */
    long cache_mb;           /* -1: from free memory */
    long verify;             /* iterations between comparisons of the weights, 0: never */
    long nonfinite;          /* enum cmn_nonfinite_mode */
    long checkpoint;         /* iterations between checkpoints, 0: none */
    long checkpoint_keep;    /* so many of the latest */

    uint64_t fixed; /* bit i: the command line set key i, the cfg must not */
    uint64_t given; /* bit i: one of them has set it */
};

/* Local. Sets every key to its default. */
void cmn_options_default(struct cmn_options *o);

/* Local. Sets one key; the reason of a failure says whether the command line or the cfg is wrong.
 * A value set from the command line is kept when the cfg sets the same key later.
 * 0, or -1 with a reason that names the key, the value, and what would be right. */
int cmn_options_set(struct cmn_options *o, const char *key, const char *value, int command_line);

/* Local. Keys that were given and do nothing: those of trainings for a command that only evaluates (its name, or NULL), those
 * without another one that they belong to. The cfg's are said by rank 0, if at all, as it may be meant for other
 * commands; one of the command line is an error: -1 with a reason. */
int cmn_options_idle(const struct cmn_options *o, const char *evaluator);

/* Local. One line per key as "key = value\n", for comparing ranks. 0, or -1 with a reason when
 * `bytes` are too few; the text is cut then. */
int cmn_options_print(const struct cmn_options *o, char *text, size_t bytes);

/* Local. The word that a key whose values are words has now. Valid until the
 * thread's next call. */
const char *cmn_options_word(const struct cmn_options *o, const char *key);

/* Local. The table: number of keys, and one key's columns. Strings are static. */
struct cmn_option_row {
    const char *key, *value, *range, *help;
};
int cmn_options_count(void);
void cmn_options_row(int i, struct cmn_option_row *row);

#endif
