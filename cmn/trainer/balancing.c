/* Extension, with cmn_balance: every few steps the ranks compare how long a micro-batch takes them,
 * and divide the micro-batches anew (trainer/balance.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "report/report.h"
#include "trainer/extension.h"

enum { EVERY = 8 }; /* steps between measurements; a new division waits for two of them */

/* What this rank has done since its last measurement. */
struct balancing {
    double load;     /* seconds that it waited for images */
    double computed; /* p->computing and p->computed, when it last measured */
    long micro_batches;
};

static void *open_balancing(struct cmn_step *p)
{
    return p->feed->balance.on ? cmn_calloc(1, sizeof(struct balancing)) : NULL;
}

static void before_step(void *self, struct cmn_step *p)
{
    struct balancing *b = self;

    b->load += p->done ? p->began - p->ended : 0;
}

static void say_division(const struct cmn_step *p, double part)
{
    struct cmn_balance *b = &p->feed->balance;
    int *first = cmn_calloc((size_t)b->ranks + 1, sizeof *first);
    int rank = 0, many = 0;
    char text[64] = "";

    cmn_balance_first(b, b->from, first);
    for (; rank < b->ranks && !many; rank++) {
        size_t n = strlen(text);
        many = n > sizeof text - 16;
        snprintf(text + n, sizeof text - n, many ? " …" : " %d", first[rank + 1] - first[rank]);
    }
    cmn_report_clear(p->session->report);
    cmn_say(
        "cmn_balance=auto: from iteration %ld on the ranks compute%s of %d micro-batches: %.0f%% "
        "of the time of equal parts",
        cmn_step_iteration(p) + 3, text, b->micro_batches, 100 * part);
    free(first);
}

static void after_exchange(void *self, struct cmn_step *p)
{
    struct balancing *mine = self;
    struct cmn_balance *b = &p->feed->balance;
    long n = p->computed - mine->micro_batches;
    double each = (p->computing - mine->computed + mine->load) / (double)(n + !n), *all, part = 1;

    if (p->feed->step % EVERY) {
        return;
    }
    all = cmn_calloc((size_t)b->ranks, sizeof *all);
    cmn_status_wait("the times of the ranks");
    MPI_CALL(MPI_Allgather(&each, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, p->session->topology.world));
    cmn_status_wait(NULL);
    if (cmn_balance_measured(b, p->feed->step - 1, all, &part)) {
        say_division(p, part);
    }
    *mine = (struct balancing){0, p->computing, p->computed};
    free(all);
}

const struct cmn_extension cmn_balance_extension = {
    .name = "balance",
    .open = open_balancing,
    .close = free,
    .before_step = before_step,
    .after_exchange = after_exchange,
};
