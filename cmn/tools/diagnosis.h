/* From what was found to what it means, in words. Pure functions: no MPI, nothing is printed. */
#ifndef CMN_VERDICT_H
#define CMN_VERDICT_H

#include "tools/host_info.h"

/* Two ranks that sent each other bytes while all others were silent. */
struct cmn_pair {
    int a, b;
    double microseconds; /* one way, 4 bytes */
    double gigabytes;    /* per second and direction, 4 MiB */
};

/* What came of a communicator's trial. */
struct cmn_trial {
    const char *name;
    enum { CMN_WORKS, CMN_REFUSES, CMN_FAILS } result;
    char why[CMN_LINE];
};

struct cmn_findings {
    const struct cmn_host_info *rank; /* of each rank, in order */
    int ranks;
    int ring_wrong, sum_wrong; /* ranks that got wrong values, of neighbours and of MPI_Allreduce */
    const struct cmn_pair *pair;
    int pairs;
    const struct cmn_trial *trial;
    int trials;
    const char *choice; /* why no communicator could be chosen; NULL: one was */
};

enum { CMN_VERDICTS = 64 };

struct cmn_diagnoses {
    int n, faults;
    struct cmn_diagnosis {
        int fault; /* 0: it works, but slower than it could */
        char text[512];
    } item[CMN_VERDICTS];
};

/* Local. Everything that is wrong, the likeliest cause first. No fault, no entry: all is well. What does not
 * fit is left out, but counted. */
void cmn_diagnoses(const struct cmn_findings *f, struct cmn_diagnoses *v);

/* Local. Whether Open MPI's settings let its TCP use this interface. */
int cmn_nic_used(const struct cmn_host_info *f, const struct cmn_nic *nic);

/* Local. Cores as "0-3,8"; cut to fit. Returns text. */
const char *cmn_cores_text(const cpu_set_t *cores, char *text, size_t bytes);

/* Local. "10.0.0.1". Returns text. */
const char *cmn_address_text(uint32_t address, char *text, size_t bytes);

#endif
