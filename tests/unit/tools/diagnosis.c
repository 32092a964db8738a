/* Every fault that `darknet cmn check` knows, fed to it as host info. */
#include "check.h"

#include <netinet/in.h>

#include "tools/diagnosis.h"

enum { RANKS = 4 };

static struct cmn_host_info rank[RANKS];
static struct cmn_pair pair[RANKS - 1];
static struct cmn_trial trial[2];
static struct cmn_findings found;
static struct cmn_diagnoses said;

static void give_cores(int i, int from, int to)
{
    CPU_ZERO(&rank[i].cores);
    for (int core = from; core <= to; core++) {
        CPU_SET(core, &rank[i].cores);
    }
}

static void give_nic(int i, const char *name, uint32_t address, int bits)
{
    struct cmn_nic *nic = &rank[i].nic[rank[i].nics++];
    struct sockaddr_in in = {.sin_family = AF_INET};

    snprintf(nic->name, sizeof nic->name, "%s", name);
    in.sin_addr.s_addr = htonl(address);
    memcpy(&nic->address, &in, sizeof in);
    nic->bits = bits;
}

/* Two nodes of two ranks with four cores each: nothing is wrong. */
static void all_well(void)
{
    memset(rank, 0, sizeof rank);
    for (int i = 0; i < RANKS; i++) {
        struct cmn_host_info *r = &rank[i];
        int node = i / 2;
        snprintf(r->host, sizeof r->host, "host%d", node + 1);
        r->rank = i;
        r->intra_rank = i % 2;
        r->intra_size = 2;
        r->inter_rank = node;
        r->inter_size = 2;
        r->stack = (uint64_t)(100 + node);
        r->online = 4;
        give_cores(i, 0, 3);
        r->blas_threads = 2;
        r->launched = RANKS;
        snprintf(r->mpi, sizeof r->mpi, "Open MPI v4.1.4, package: any");
        snprintf(r->version, sizeof r->version, "1.0");
        r->program = 77;
        r->device = r->gpus = -1;
        snprintf(r->exclude, sizeof r->exclude, "127.0.0.1/8,sppp");
        give_nic(i, "lo", 0x7f000001, 8);
        give_nic(i, "eth0", 0x0a000001U + (uint32_t)node, 24);
    }
    for (int i = 0; i + 1 < RANKS; i++) {
        pair[i] = (struct cmn_pair){i, i + 1, 1, i == 1 ? 0.1 : 5};
    }
    trial[0] = (struct cmn_trial){"one", CMN_WORKS, ""};
    trial[1] = (struct cmn_trial){"two", CMN_REFUSES, "not on a Sunday"};
    found = (struct cmn_findings){rank, RANKS, pair, RANKS - 1, trial, 2, NULL};
}

static void give_docker(void)
{
    for (int i = 0; i < RANKS; i++) {
        give_nic(i, "docker0", 0xac110001, 16);
    }
}

/* The same text for both ranks of the second node. */
#define ON_HOST2(field, text)                                      \
    for (int i = 2; i < RANKS; i++) {                              \
        snprintf(rank[i].field, sizeof rank[i].field, "%s", text); \
    }

/* The diagnoses are exactly one, a fault or not, and hold all of these parts (up to NULL). */
static void one_diagnosis(int fault, const char *const *parts)
{
    cmn_diagnose_job(&found, &said);
    if (said.n != 1) {
        fail_msg("%d diagnoses instead of one: %s", said.n, said.n ? said.item[0].text : "");
    }
    assert_int_equal(said.item[0].fault, fault);
    assert_int_equal(said.faults, fault);
    for (; *parts; parts++) {
        check_contains(said.item[0].text, *parts);
    }
}

#define FAULT(...) one_diagnosis(1, (const char *const[]){__VA_ARGS__, NULL})
#define NOTE(...) one_diagnosis(0, (const char *const[]){__VA_ARGS__, NULL})

TEST(nothing_is_wrong)
{
    cmn_diagnose_job(&found, &said);
    assert_int_equal(said.n, 0);
    assert_int_equal(said.faults, 0);
}

TEST(processes_that_are_alone)
{
    found.ranks = 1;
    found.pairs = 0;
    rank[0].inter_size = rank[0].intra_size = 1;
    FAULT("started 4 processes", "each of them is alone", "Open MPI v4.1.4)", "mpiexec --version");
    rank[0].launched = 1;
    NOTE("one rank", "mpiexec -n N");
}

TEST(different_programs)
{
    rank[2].program = rank[3].program = 78;
    FAULT("different programs", "rank 2 on host2", "rank 0 on host1", "copy one");
    rank[2].program = rank[3].program = 0; /* could not be read */
    nothing_is_wrong(NULL);
}

/* Ranks dealt out in turn, as Slurm's cyclic distribution does: still one word for a node. */
TEST(different_programs_in_turn)
{
    struct cmn_host_info second = rank[1];

    rank[1] = rank[2], rank[1].rank = 1;
    rank[2] = second, rank[2].rank = 2;
    found.pairs = 0;
    rank[1].program = rank[3].program = 78;
    FAULT("rank 1 on host2");
}

TEST(another_program_within_a_node)
{
    rank[1].program = 78;
    cmn_diagnose_job(&found, &said);
    assert_true(said.faults >= 1);
    check_contains(said.item[0].text, "rank 1 on host1");
}

TEST(different_versions)
{
    ON_HOST2(version, "1.1");
    rank[2].program = rank[3].program = 78;
    FAULT("darknet-cmn 1.1 on host2", "1.0 on host1");
}

TEST(different_mpi)
{
    ON_HOST2(mpi, "Open MPI v4.1.6, package: any");
    FAULT("different MPI libraries", "Open MPI v4.1.6 on host2", "Open MPI v4.1.4 on host1");
}

TEST(two_ranks_bound_to_one_core)
{
    give_cores(2, 3, 3);
    give_cores(3, 3, 3);
    rank[2].blas_threads = rank[3].blas_threads = 1;
    FAULT("ranks 2 and 3 on host2", "bound to one core, number 3", "--bind-to none");
    found.pairs = 0;
    rank[2].inter_rank = 0; /* another node's core 3 is another core */
    rank[2].intra_rank = 1;
    nothing_is_wrong(NULL);
}

TEST(more_ranks_than_cores)
{
    for (int i = 0; i < 2; i++) {
        rank[i].online = 1;
        rank[i].blas_threads = 1;
        give_cores(i, 0, 0);
    }
    NOTE("2 ranks share 1 core (0) of host1", "--oversubscribe");
}

TEST(more_threads_than_cores)
{
    rank[0].blas_threads = 4;
    NOTE("BLAS threads of 2 ranks of host1, 6 in all, share 4 cores", "OPENBLAS_NUM_THREADS");
    for (int i = 0; i < RANKS; i++) {
        give_cores(i, i % 2, i % 2);
        rank[i].blas_threads = 1 + (i == 0);
    }
    NOTE("BLAS threads of 1 rank of host1, 2 in all, share 1 core:");
    rank[0].blas_threads = 1; /* all are bound one by one */
    nothing_is_wrong(NULL);
}

TEST(no_shared_window)
{
    ON_HOST2(window, "8 MiB of memory are free");
    NOTE("host2 cannot share memory", "8 MiB of memory are free");
}

TEST(no_gpu_for_a_program_that_wants_one)
{
    rank[2].gpus = rank[3].gpus = 0;
    NOTE("built for GPUs", "none on host2", "-nogpu");
}

TEST(one_host_but_two_nodes)
{
    ON_HOST2(host, "host1");
    rank[2].stack = rank[3].stack = rank[0].stack;
    FAULT("ranks 0 and 2 are both on host1", "share memory");
    rank[2].stack = rank[3].stack = 5; /* only the names are the same */
    nothing_is_wrong(NULL);
}

TEST(one_address_on_two_machines)
{
    give_docker();
    FAULT("docker0 has the same address 172.17.0.1 on host1 and on host2",
          "btl_tcp_if_exclude lo,docker0");
    for (int i = 0; i < RANKS; i++) {
        snprintf(rank[i].exclude, sizeof rank[i].exclude, "lo,docker0");
    }
    nothing_is_wrong(NULL);
    for (int i = 0; i < RANKS; i++) {
        rank[i].exclude[0] = '\0';
        rank[i].stack = 9; /* containers that share the machine's network */
    }
    nothing_is_wrong(NULL);
}

TEST(included_interfaces)
{
    give_docker();
    for (int i = 0; i < RANKS; i++) {
        snprintf(rank[i].include, sizeof rank[i].include,
                 i < 2 ? "eth0" : "192.168.0.0/16,10.0.0.0/24");
    }
    nothing_is_wrong(NULL);
    for (int i = 0; i < RANKS; i++) {
        snprintf(rank[i].include, sizeof rank[i].include, "lo,eth0");
    }
    nothing_is_wrong(NULL); /* each machine has that address of lo */
    snprintf(rank[2].include, sizeof rank[2].include, "10.0.1.0/24");
    FAULT("host2 has no interface", "btl_tcp_if_include=10.0.1.0/24");
}

TEST(no_interface)
{
    rank[0].nics = 1; /* lo */
    FAULT("host1 has no network interface");
    rank[0].nic[0] = rank[0].nic[1];
    nothing_is_wrong(NULL);
}

TEST(networks_do_not_matter_on_one_node)
{
    found.pairs = 0;
    for (int i = 0; i < RANKS; i++) {
        rank[i].inter_size = 1;
        rank[i].inter_rank = 0;
        rank[i].intra_rank = i;
        rank[i].nics = 0;
        rank[i].blas_threads = 1;
    }
    nothing_is_wrong(NULL);
}

/* (What a list holds: tests/unit/base/nics.c.) */
TEST(used_interfaces)
{
    struct cmn_host_info *r = &rank[0];
    static const struct {
        const char *include, *exclude;
        int lo, eth0;
    } cases[] = {
        {"", "", 0, 1},          {"", "127.0.0.1/8,sppp", 0, 1},
        {"", "eth0", 0, 0},      {"", "10.0.0.0/24", 0, 0},
        {"eth0", "eth0", 0, 1},  {"lo", "", 1, 0},
        {"0.0.0.0/0", "", 1, 1},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(r->include, sizeof r->include, "%s", cases[i].include);
        snprintf(r->exclude, sizeof r->exclude, "%s", cases[i].exclude);
        if (cmn_nic_used(r, &r->nic[0]) != cases[i].lo ||
            cmn_nic_used(r, &r->nic[1]) != cases[i].eth0) {
            fail_msg("include \"%s\", exclude \"%s\"", cases[i].include, cases[i].exclude);
        }
    }
}

TEST(communicators_that_fail)
{
    trial[0].result = CMN_FAILS;
    snprintf(trial[0].why, sizeof trial[0].why, "wrong sums on rank 3");
    FAULT("communicator one: wrong sums on rank 3");
    trial[0].result = CMN_WORKS;
    found.choice = "nothing works";
    FAULT("nothing works");
}

TEST(slow_pairs)
{
    pair[2].gigabytes = 0.5;
    NOTE("ranks 2 and 3 (host2, host2) exchange 0.50 GB/s", "ranks 0 and 1", "5.00");
    assert_null(strstr(said.item[0].text, "cable"));
    pair[2].gigabytes = 2;
    nothing_is_wrong(NULL);
    pair[0].b = 3; /* between nodes, as ranks 1 and 2 */
    NOTE("ranks 1 and 2 (host1, host2) exchange 0.10 GB/s", "ranks 0 and 3", "look at its cable");
}

TEST(many_diagnoses)
{
    enum { MANY = 3 * CMN_DIAGNOSES };
    static struct cmn_trial many[MANY];

    for (int i = 0; i < MANY; i++) {
        many[i] = (struct cmn_trial){"one", CMN_FAILS, "why"};
    }
    found.trial = many;
    found.trials = MANY;
    cmn_diagnose_job(&found, &said);
    assert_int_equal(said.n, CMN_DIAGNOSES);
    assert_int_equal(said.faults, MANY);
}

TEST(cores_as_text)
{
    char text[64], small[8];

    give_cores(0, 0, 3);
    CPU_SET(8, &rank[0].cores);
    CPU_SET(CPU_SETSIZE - 1, &rank[0].cores);
    assert_string_equal(cmn_cores_text(&rank[0].cores, text, sizeof text), "0-3,8,1023");
    CPU_ZERO(&rank[0].cores);
    assert_string_equal(cmn_cores_text(&rank[0].cores, text, sizeof text), "unknown");
    for (int i = 0; i < CPU_SETSIZE; i += 2) {
        CPU_SET(i, &rank[0].cores);
    }
    assert_true(strlen(cmn_cores_text(&rank[0].cores, small, sizeof small)) < sizeof small);
}

TESTS(all_well, NULL)
