#include "tools/diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct cmn_diagnoses *d, int fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct cmn_diagnoses *d, int fault, const char *format, ...)
{
    va_list args;

    d->faults += fault;
    if (d->n == CMN_DIAGNOSES) {
        return;
    }
    d->item[d->n].fault = fault;
    va_start(args, format);
    vsnprintf(d->item[d->n].text, sizeof d->item[d->n].text, format, args);
    va_end(args);
    d->n++;
}

const char *cmn_cores_text(const cpu_set_t *cores, char *text, size_t bytes)
{
    size_t used = 0;

    snprintf(text, bytes, "unknown");
    for (int i = 0, end; i < CPU_SETSIZE && used < bytes; i = end + 1) {
        end = i;
        if (!CPU_ISSET(i, cores)) {
            continue;
        }
        while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, cores)) {
            end++;
        }
        used += (size_t)snprintf(text + used, bytes - used, end > i ? "%s%d-%d" : "%s%d",
                                 used ? "," : "", i, end);
    }
    return text;
}

const char *cmn_address_text(uint32_t address, char *text, size_t bytes)
{
    snprintf(text, bytes, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
             address & 255);
    return text;
}

/* ---- launcher and programs ---- */

static void diagnose_launch(const struct cmn_findings *f, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *r = f->rank;

    if (f->ranks == 1 && r->launched > 1) {
        add(d, 1,
            "the launcher started %d processes, but each of them is alone: mpiexec is not of "
            "the MPI that the program was linked with (%.*s); `ldd PROGRAM | grep libmpi` and "
            "`mpiexec --version` must name the same one; under Slurm use `srun --mpi=pmix`",
            r->launched, (int)strcspn(r->mpi, ","), r->mpi);
    } else if (f->ranks == 1) {
        add(d, 0, "one rank: there is nobody to exchange with; start it with `mpiexec -n N`");
    }
}

/* Returns whether rank i runs the same program and MPI as an earlier rank, the first of its node,
 * which has been diagnosed. */
static int runs_as_its_node(const struct cmn_findings *f, int i)
{
    const struct cmn_host_info *r = &f->rank[i];

    for (int j = 0; j < i; j++) {
        const struct cmn_host_info *first = &f->rank[j];
        if (first->inter_rank == r->inter_rank) {
            return first->program == r->program && !strcmp(first->mpi, r->mpi);
        }
    }
    return 0;
}

static void diagnose_programs(const struct cmn_findings *f, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *first = f->rank;

    for (int i = 1; i < f->ranks; i++) {
        const struct cmn_host_info *r = &f->rank[i];
        if (runs_as_its_node(f, i)) {
            continue;
        }
        if (strcmp(r->version, first->version)) {
            add(d, 1,
                "different programs: darknet-cmn %s on %s (rank %d), %s on %s (rank 0): "
                "install the same one on all machines",
                r->version, r->host, r->rank, first->version, first->host);
        } else if (r->program != first->program && r->program && first->program) {
            add(d, 1,
                "different programs: the file that rank %d on %s runs is not that of rank 0 on "
                "%s, and may compute other bits: copy one to all machines",
                r->rank, r->host, first->host);
        }
        if (strcmp(r->mpi, first->mpi)) {
            add(d, 1,
                "different MPI libraries: %.*s on %s (rank %d), %.*s on %s (rank 0): install "
                "the same one on all machines",
                (int)strcspn(r->mpi, ","), r->mpi, r->host, r->rank, (int)strcspn(first->mpi, ","),
                first->mpi, first->host);
        }
    }
}

/* ---- cores and memory of a node ---- */

/* Adds an entry if the set of cores of rank `first` is too small for the ranks bound to it. Each
 * set gets one entry, at the first rank that is bound to it. */
static void diagnose_cores(const struct cmn_findings *f, int first, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *a = &f->rank[first];
    int sharers = 0, threads = 0, count = CPU_COUNT(&a->cores), second = 0;
    char cores[64];

    for (int i = 0; i < f->ranks; i++) {
        const struct cmn_host_info *b = &f->rank[i];
        if (b->inter_rank == a->inter_rank && CPU_EQUAL(&a->cores, &b->cores)) {
            if (i < first) {
                return;
            }
            sharers++;
            threads += b->blas_threads;
            second = sharers == 2 ? i : second;
        }
    }
    if (!count) {
        return;
    }
    cmn_cores_text(&a->cores, cores, sizeof cores);
    if (sharers > count && count == 1 && a->online > 1) {
        add(d, 1,
            "ranks %d and %d on %s are bound to one core, number %s (%d ranks share it, the "
            "machine has %d cores): mpiexec --bind-to none",
            a->rank, second, a->host, cores, sharers, a->online);
    } else if (sharers > count) {
        add(d, 0,
            "%d ranks share %d core%s (%s) of %s: more than one rank a core is slower, and "
            "needs mpiexec --oversubscribe --mca mpi_yield_when_idle 1",
            sharers, count, count > 1 ? "s" : "", cores, a->host);
    } else if (threads > count) {
        add(d, 0,
            "the BLAS threads of %d rank%s of %s, %d in all, share %d core%s: unset "
            "OPENBLAS_NUM_THREADS and OMP_NUM_THREADS",
            sharers, sharers > 1 ? "s" : "", a->host, threads, count, count > 1 ? "s" : "");
    }
}

static void diagnose_node(const struct cmn_findings *f, int i, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *a = &f->rank[i];

    if (a->window[0] && a->intra_rank == 0) {
        add(d, 0, "ranks of %s cannot share memory, which communicator shm needs: %s", a->host,
            a->window);
    }
    if (a->gpus == 0 && a->intra_rank == 0) {
        add(d, 0,
            "this program is built for GPUs and finds none on %s: a training there needs -nogpu",
            a->host);
    }
    for (int j = 0; j < i && a->intra_rank == 0; j++) {
        const struct cmn_host_info *b = &f->rank[j];
        if (b->inter_rank < a->inter_rank && b->intra_rank == 0 && !strcmp(a->host, b->host) &&
            a->stack == b->stack) {
            add(d, 1,
                "ranks %d and %d are both on %s, but MPI does not see that they can share "
                "memory: in containers give them one /dev/shm and one process namespace, and "
                "name the host once for mpiexec",
                b->rank, a->rank, a->host);
        }
    }
}

/* ---- networks ---- */

int cmn_nic_used(const struct cmn_host_info *info, const struct cmn_nic *nic)
{
    if (info->include[0]) {
        return cmn_nic_in_list(nic, info->include);
    }
    return !cmn_nic_is_loopback(nic) && !cmn_nic_in_list(nic, info->exclude);
}

static const struct cmn_nic *with_address(const struct cmn_host_info *info, uint32_t address)
{
    for (int i = 0; i < info->nics; i++) {
        if (cmn_nic_ipv4(&info->nic[i]) == address && cmn_nic_used(info, &info->nic[i])) {
            return &info->nic[i];
        }
    }
    return NULL;
}

/* Finds an address of rank i's host that another host has, too. docker0 and virbr0, for example,
 * have the same address on every host. */
static void diagnose_addresses(const struct cmn_findings *f, int i, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *a = &f->rank[i];
    char address[16];

    for (int k = 0; k < a->nics; k++) {
        const struct cmn_nic *nic = &a->nic[k];
        if (cmn_nic_is_loopback(nic) || !cmn_nic_used(a, nic)) {
            continue;
        }
        for (int j = 0; j < i; j++) {
            const struct cmn_host_info *b = &f->rank[j];
            if (b->intra_rank == 0 && b->stack != a->stack && with_address(b, cmn_nic_ipv4(nic))) {
                add(d, 1,
                    "%s has the same address %s on %s and on %s, and MPI may try to connect "
                    "through it: mpiexec --mca btl_tcp_if_exclude lo,%s --mca "
                    "oob_tcp_if_exclude lo,%s, or name the common network with "
                    "btl_tcp_if_include",
                    nic->name, cmn_address_text(cmn_nic_ipv4(nic), address, sizeof address),
                    b->host, a->host, nic->name, nic->name);
                break;
            }
        }
    }
}

static void diagnose_networks(const struct cmn_findings *f, int i, struct cmn_diagnoses *d)
{
    const struct cmn_host_info *a = &f->rank[i];
    int usable = 0;

    if (a->intra_rank != 0 || a->inter_size == 1) {
        return;
    }
    for (int k = 0; k < a->nics; k++) {
        usable += cmn_nic_used(a, &a->nic[k]) && !cmn_nic_is_loopback(&a->nic[k]);
    }
    if (!usable && a->include[0]) {
        add(d, 1, "%s has no interface that btl_tcp_if_include=%s names", a->host, a->include);
    } else if (!usable) {
        add(d, 1, "%s has no network interface that MPI's TCP may use", a->host);
    }
    diagnose_addresses(f, i, d);
}

/* ---- results of the probes ---- */

/* Compares the pairs within nodes, or those between nodes, and notes the slowest one if the fastest
 * one is over four times as fast. */
static void diagnose_pairs(const struct cmn_findings *f, int between, struct cmn_diagnoses *d)
{
    const struct cmn_pair *slow = NULL, *fast = NULL;

    for (int i = 0; i < f->pairs; i++) {
        const struct cmn_pair *p = &f->pair[i];
        if ((f->rank[p->a].inter_rank != f->rank[p->b].inter_rank) != between) {
            continue;
        }
        slow = !slow || p->gigabytes < slow->gigabytes ? p : slow;
        fast = !fast || p->gigabytes > fast->gigabytes ? p : fast;
    }
    if (slow && slow->gigabytes * 4 < fast->gigabytes) {
        add(d, 0,
            "ranks %d and %d (%s, %s) exchange %.2f GB/s, ranks %d and %d (%s, %s) %.2f: every "
            "step waits for the slowest pair%s",
            slow->a, slow->b, f->rank[slow->a].host, f->rank[slow->b].host, slow->gigabytes,
            fast->a, fast->b, f->rank[fast->a].host, f->rank[fast->b].host, fast->gigabytes,
            between ? "; look at its cable, switch port and interface" : "");
    }
}

static void diagnose_trials(const struct cmn_findings *f, struct cmn_diagnoses *d)
{
    for (int i = 0; i < f->trials; i++) {
        if (f->trial[i].result == CMN_FAILS) {
            add(d, 1, "communicator %s: %s", f->trial[i].name, f->trial[i].why);
        }
    }
    if (f->choice) {
        add(d, 1, "%s", f->choice);
    }
}

void cmn_diagnose_job(const struct cmn_findings *f, struct cmn_diagnoses *d)
{
    d->n = d->faults = 0;
    diagnose_launch(f, d);
    diagnose_programs(f, d);
    for (int i = 0; i < f->ranks; i++) {
        diagnose_node(f, i, d);
        diagnose_networks(f, i, d);
    }
    diagnose_trials(f, d);
    for (int i = 0; i < f->ranks; i++) {
        diagnose_cores(f, i, d);
    }
    diagnose_pairs(f, 0, d);
    diagnose_pairs(f, 1, d);
}
