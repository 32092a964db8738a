#include "trainer/extensions.h"

extern const struct cmn_extension cmn_sync_batch_norm_extension, cmn_metrics_extension,
    cmn_nonfinite_extension, cmn_times_extension, cmn_status_extension, cmn_division_extension,
    cmn_exact_statistics_extension, cmn_stop_extension, cmn_balance_extension, cmn_bucket_extension,
    cmn_checkpoint_extension, cmn_timeline_extension, cmn_validation_extension, cmn_best_extension,
    cmn_verification_extension, cmn_rows_extension, cmn_nhwc_extension;

/* The order of all calls, the closing ones included. */
static const struct cmn_extension *const order[] = {
    /* Names the layer before anything is done to it. */
    &cmn_status_extension,
    /* On a GPU its exchange ends before somebody waits for the loss: a rank in that wait would not
     * see that another rank never comes. */
    &cmn_sync_batch_norm_extension,
    &cmn_nhwc_extension,
    /* The loss, before it is looked at. */
    &cmn_metrics_extension,
    /* Decides whether the step is skipped, and remembers rolling statistics before others change
     * them. */
    &cmn_nonfinite_extension,
    /* Which micro-batches of the step are this rank's. */
    &cmn_division_extension,
    &cmn_exact_statistics_extension,
    &cmn_stop_extension,
    /* What the extensions before it did counts as the micro-batch's; the two behind it read its
     * times. */
    &cmn_times_extension,
    &cmn_balance_extension,
    &cmn_bucket_extension,
    /* A resume says so before the report begins, and sets the clocks of its first row. At the end
     * the last checkpoint is on the disk before the report closes, whose rows it counts on. */
    &cmn_checkpoint_extension,
    /* Opens its file before the report erases that of an earlier training. */
    &cmn_timeline_extension,
    /* Says what is due before rows are made, and fills its columns before the best is looked for
     * in them. */
    &cmn_validation_extension,
    &cmn_best_extension,
    /* No row is made of weights that differ. */
    &cmn_verification_extension,
    &cmn_rows_extension,
};

enum { EXTENSIONS = sizeof order / sizeof order[0] };
_Static_assert((int)EXTENSIONS <= (int)CMN_EXTENSIONS_AT_MOST, "struct cmn_step has room for all");

void cmn_extensions_open(struct cmn_step *p)
{
    p->extensions = 0;
    for (int i = 0; i < EXTENSIONS; i++) {
        void *self = order[i]->open ? order[i]->open(p) : p;
        if (self) {
            p->extension[p->extensions].is = order[i];
            p->extension[p->extensions++].self = self;
        }
    }
}

void cmn_extensions_close(struct cmn_step *p)
{
    for (int i = 0; i < p->extensions; i++) {
        if (p->extension[i].is->close) {
            p->extension[i].is->close(p->extension[i].self);
        }
    }
    p->extensions = 0;
    p->nonfinite = NULL;
    p->norm = NULL;
}
