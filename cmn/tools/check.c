/* `darknet cmn check [CFG]`: prints what each rank has, whether the ranks reach each other, and a
 * diagnosis, like a troubleshooting guide. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/call.h"
#include "tools/diagnosis.h"
#include "tools/probe.h"
#include "tools/tool.h"
#include "trainer/forecast.h"

struct check {
    struct cmn_tool_call *call;
    const struct cmn_session *session;
    const struct cmn_topology *t;
    FILE *out;                    /* NULL on ranks that print nothing */
    const char *cfg;              /* or NULL */
    struct cmn_findings findings; /* of all ranks on rank 0; of this rank on the others */
    char choice[512], refused[512];
};

static void read_arguments(struct check *c)
{
    for (int i = 1; i < c->call->argc; i++) {
        const char *word = c->call->argv[i];
        if (word[0] == '-') {
            cmn_fatal(
                "darknet cmn check: unknown argument %s; known are: CFG, -cmn_KEY VALUE, -nogpu",
                word);
        }
        if (c->cfg) {
            cmn_fatal("darknet cmn check: one cfg can be checked, not two: %s and %s", c->cfg,
                      word);
        }
        c->cfg = word;
    }
}

/* ---- gathering ---- */

static void gather_host_info(struct check *c)
{
    const struct cmn_topology *t = c->t;
    struct cmn_findings *f = &c->findings;
    struct cmn_host_info mine;
    const int bytes = sizeof mine;

    cmn_status_wait("a window shared by the ranks of a node");
    cmn_host_info_gather(&mine, c->session);
    f->ranks = t->rank == 0 ? t->size : 1;
    f->rank = cmn_calloc((size_t)f->ranks, sizeof *f->rank);
    f->rank[0] = mine;
    cmn_status_wait("gathering the ranks' host info");
    MPI_CALL(MPI_Gather(&mine, bytes, MPI_BYTE, f->rank, bytes, MPI_BYTE, 0, t->world));
}

static void choose(struct check *c)
{
    const struct cmn_communicator *chosen;
    const char *why;

    cmn_status_wait("the choice of a communicator");
    chosen = cmn_communicator_choose(c->t, &c->session->options, &why);
    if (chosen) {
        snprintf(c->choice, sizeof c->choice, "%s (%s)", chosen->name, why);
    } else {
        snprintf(c->refused, sizeof c->refused, "%s", cmn_reason());
        c->findings.choice = c->refused;
    }
}

static void gather(struct check *c)
{
    struct cmn_findings *f = &c->findings;

    gather_host_info(c);
    f->pair = cmn_probe_pairs(c->t, &f->pairs);
    f->trial = cmn_probe_candidates(c->session, &f->trials);
    choose(c);
}

/* ---- the report ---- */

static void print_ranks(const struct check *c)
{
    fprintf(c->out, "%-5s %-4s %-5s %-5s %-6s %-4s %-6s %s\n", "rank", "node", "intra", "inter",
            "bound", "BLAS", "device", "host, cores");
    for (int i = 0; i < c->findings.ranks; i++) {
        const struct cmn_host_info *r = &c->findings.rank[i];
        int count = CPU_COUNT(&r->cores);
        char cores[64], device[16] = "CPU", bound[16] = "no";
        if (r->device >= 0) {
            snprintf(device, sizeof device, "GPU %d", r->device);
        }
        if (count < r->online) {
            snprintf(bound, sizeof bound, "to %d", count);
        }
        fprintf(c->out, "%-5d %-4d %-5d %-5d %-6s %-4d %-6s %s, %s of %d\n", r->rank, r->inter_rank,
                r->intra_rank, r->inter_rank, bound, r->blas_threads, device, r->host,
                cmn_cores_text(&r->cores, cores, sizeof cores), r->online);
    }
}

static void print_nics(const struct check *c, const struct cmn_host_info *r)
{
    char address[16];

    fprintf(c->out, "  network   ");
    for (int i = 0; i < r->nics; i++) {
        const struct cmn_nic *nic = &r->nic[i];
        fprintf(c->out, "%s%s %s/%d%s", i ? ", " : " ", nic->name,
                cmn_address_text(cmn_nic_ipv4(nic), address, sizeof address), nic->bits,
                cmn_nic_used(r, nic) ? "" : " (not for MPI)");
    }
    if (r->include[0] || r->exclude[0]) {
        fprintf(c->out, "; btl_tcp_if_%s=%s", r->include[0] ? "include" : "exclude",
                r->include[0] ? r->include : r->exclude);
    }
    fputc('\n', c->out);
}

static void print_node(const struct check *c, const struct cmn_host_info *r)
{
    fprintf(c->out, "node %d: %s, %d rank%s\n", r->inter_rank, r->host, r->intra_size,
            r->intra_size > 1 ? "s" : "");
    fprintf(c->out, "  program    darknet-cmn %s, file %016llx\n", r->version,
            (unsigned long long)r->program);
    fprintf(c->out, "  MPI        %s\n", r->mpi);
    fprintf(c->out, "  CUDA       %s; NCCL: %s\n", r->cuda, r->nccl);
    print_nics(c, r);
    fprintf(c->out, "  memory     %.1f GiB free; /dev/shm %.1f GiB, %.1f free; %s\n",
            (double)r->memory_free / (1 << 30), (double)r->shm_size / (1 << 30),
            (double)r->shm_free / (1 << 30),
            r->window[0] ? "NO shared window of 64 MiB" : "a shared window of 64 MiB can be had");
}

static void print_pairs(const struct check *c)
{
    const struct cmn_findings *f = &c->findings;

    fprintf(c->out, "%s", f->pairs ? "neighbours:\n" : "");
    for (int i = 0; i < f->pairs; i++) {
        const struct cmn_pair *p = &f->pair[i];
        fprintf(c->out, "  ranks %d and %d: %.1f us, %.2f GB/s%s\n", p->a, p->b, p->microseconds,
                p->gigabytes,
                c->findings.rank[p->a].inter_rank == c->findings.rank[p->b].inter_rank
                    ? ""
                    : ", between nodes");
    }
}

static void print_trials(const struct check *c)
{
    static const char *const word[] = {"works", "not here: ", "FAILS: "};
    const struct cmn_findings *f = &c->findings;

    fprintf(c->out, "communicators:\n");
    for (int i = 0; i < f->trials; i++) {
        fprintf(c->out, "  %-15s %s%s\n", f->trial[i].name, word[f->trial[i].result],
                f->trial[i].why);
    }
    fprintf(c->out, "  chosen: %s\n", c->choice[0] ? c->choice : "none");
}

static void print_report(const struct check *c)
{
    fprintf(c->out, "darknet-cmn %s, %d rank%s on %d node%s\n\n", c->findings.rank[0].version,
            c->t->size, c->t->size > 1 ? "s" : "", c->t->inter_size,
            c->t->inter_size > 1 ? "s" : "");
    print_ranks(c);
    for (int i = 0; i < c->findings.ranks; i++) {
        if (c->findings.rank[i].intra_rank == 0) {
            print_node(c, &c->findings.rank[i]);
        }
    }
    print_pairs(c);
    print_trials(c);
    fputc('\n', c->out);
}

/* Rank 0 makes the diagnosis; the status of all ranks says whether there is a fault. */
static void diagnose(struct check *c)
{
    struct cmn_diagnoses *d = cmn_calloc(1, sizeof *d);

    if (c->t->rank == 0) {
        cmn_diagnose_job(&c->findings, d);
    }
    for (int i = 0; i < d->n && c->out; i++) {
        fprintf(c->out, "diagnosis: %s: %s\n", d->item[i].fault ? "fault" : "note",
                d->item[i].text);
    }
    if (c->out && d->faults == 0) {
        fprintf(c->out, "diagnosis: good: %d rank%s can train together\n", c->t->size,
                c->t->size > 1 ? "s" : "");
    }
    MPI_CALL(MPI_Bcast(&d->faults, 1, MPI_INT, 0, c->t->world));
    c->call->status = d->faults ? 1 : 0;
    free(d);
}

static void check_cfg(const struct check *c)
{
    struct cmn_plan plan;
    int mine, all;

    if (c->out) {
        fflush(c->out);
    }
    cmn_status_wait("reading the cfg");
    plan = cmn_forecast_cfg(c->call->session, c->cfg).plan;
    mine = plan.batch * plan.subdivisions;
    MPI_CALL(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, c->t->world));
    if (c->out) {
        fprintf(c->out,
                "\ncfg %s: %d images a step; rank 0 computes %d of them in %d micro-batch%s\n"
                "  gradients: %d tensors, %zu floats; %.1f MiB per rank; communicator %s (%s)\n"
                "diagnosis: good: the cfg can be trained here\n",
                c->cfg, all, mine, plan.subdivisions, plan.subdivisions > 1 ? "es" : "",
                plan.tensors, plan.floats, (double)plan.flat * sizeof(float) / (1 << 20),
                c->session->communicator->name, c->session->communicator_why);
    }
}

void cmn_tool_check(struct cmn_tool_call *call)
{
    struct check c = {.call = call, .session = call->session, .t = &call->session->topology};

    /* If a launcher started several processes and each is a job of one rank, only one of them
     * prints. */
    if (c.t->rank == 0 && (c.t->size > 1 || cmn_launcher_rank() <= 0)) {
        c.out = stdout;
    }
    read_arguments(&c);
    gather(&c);
    if (c.out) {
        print_report(&c);
    }
    diagnose(&c);
    if (c.cfg) {
        check_cfg(&c);
    }
    free(c.findings.rank);
    free(c.findings.pair);
    free(c.findings.trial);
}
