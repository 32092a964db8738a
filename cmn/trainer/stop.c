/* Extension: a rank that is asked to stop (base/stop_request.h) tells the others with the metrics,
 * so all ranks end after the same step. */
#include <signal.h>

#include "base/job_stderr.h"
#include "base/log.h"
#include "base/stop_request.h"
#include "report/report.h"
#include "trainer/extension.h"

static void before_exchange(void *self, struct cmn_step *p)
{
    float *metrics = p->model->optimizer.metrics;

    (void)self;
    metrics[CMN_INTERRUPTS] = cmn_stop_requested() == SIGINT;
    metrics[CMN_TERMINATIONS] = cmn_stop_requested() == SIGTERM;
}

static void after_sums(void *self, struct cmn_step *p)
{
    (void)self;
    p->interrupts += p->model->optimizer.metrics[CMN_INTERRUPTS];
    p->terminations += p->model->optimizer.metrics[CMN_TERMINATIONS];
}

static void after_step(void *self, struct cmn_step *p)
{
    struct cmn_session *s = p->session;

    (void)self;
    if (s->stop_signal || (p->interrupts <= 0 && p->terminations <= 0)) {
        return;
    }
    s->stop_signal = p->interrupts > 0 ? SIGINT : SIGTERM;
    cmn_net_stop_after_this_iteration(p->model->net);
    if (cmn_stop_is_of_host()) {
        /* cmn-run continues without this host. */
        cmn_job_event("leave", cmn_step_iteration(p), "");
    }
    cmn_report_clear(s->report);
    cmn_warn("asked to stop: the training ends after iteration %ld, with its weights saved",
             cmn_step_iteration(p));
    if (s->topology.rank == 0) {
        /* cmn-run repeats its request until it gets this event. */
        cmn_job_event("stop", cmn_step_iteration(p), "");
    }
}

const struct cmn_extension cmn_stop_extension = {
    .name = "stop requests",
    .before_exchange = before_exchange,
    .after_sums = after_sums,
    .after_step = after_step,
};
