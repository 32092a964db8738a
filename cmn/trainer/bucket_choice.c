/* Extension: the optimizer chooses the buckets of an overlapped exchange by how long steps take
 * (optimizers/bucket_tuner.h). */
#include "base/clock.h"
#include "base/log.h"
#include "report/report.h"
#include "trainer/extension.h"

static void after_exchange(void *self, struct cmn_step *p)
{
    const char *chosen = cmn_optimizer_step_took(&p->model->optimizer, cmn_clock() - p->began);

    (void)self;
    if (chosen) {
        cmn_report_clear(p->session->report);
        cmn_say("%s", chosen);
    }
}

const struct cmn_extension cmn_bucket_extension = {
    .name = "bucket tuner",
    .after_exchange = after_exchange,
};
