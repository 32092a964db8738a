/* Extension, cmn_verify: compares the weights of all ranks every few steps. With local SGD it waits
 * until the ranks should have the same weights. */
#include "base/fatal.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/nonfinite.h"
#include "engine/replicas.h"
#include "trainer/extension.h"

static void *open_verification(struct cmn_step *p)
{
    return p->session->options.verify && p->session->communicator->sums ? p : NULL;
}

static void compare(const struct cmn_step *p)
{
    const struct cmn_model *m = p->model;
    struct cmn_nonfinite bad;
    char what[160];

    cmn_status_wait("the comparison of the weights");
    if (cmn_replicas_verify(&m->gradients, m->net, &p->session->topology, &bad)) {
        cmn_fail_in("after iteration %ld", cmn_step_iteration(p));
        cmn_fatal_reason();
    }
    if (bad.name && p->session->options.nonfinite != CMN_NONFINITE_IGNORE) {
        cmn_nonfinite_say(m->net, &bad, what, sizeof what);
        cmn_fatal("after iteration %ld: NaN or Inf in the weights: %s", cmn_step_iteration(p),
                  what);
    }
    cmn_status_wait(NULL);
}

static void report(void *self, struct cmn_step *p)
{
    struct cmn_kept *kept = &p->kept;

    (void)self;
    kept->verification_due |= cmn_step_iteration(p) % p->session->options.verify == 0;
    if (kept->verification_due && cmn_optimizer_synchronised(&p->model->optimizer)) {
        kept->verification_due = 0;
        compare(p);
    }
}

const struct cmn_extension cmn_verification_extension = {
    .name = "comparison of the weights",
    .open = open_verification,
    .report = report,
};
