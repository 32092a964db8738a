/* Diagnosis: says in words what is wrong, given host info and the results of the probes. The
 * functions are pure: they do not use MPI and print nothing. */
#ifndef CMN_JOB_DIAGNOSIS_H
#define CMN_JOB_DIAGNOSIS_H

#include "tools/host_info.h"

/* The measurement of two ranks that exchanged messages while all others slept. */
struct cmn_pair {
    int a, b;
    double microseconds; /* one-way latency of a message of 4 bytes */
    double gigabytes;    /* per second in one direction, with messages of 4 MiB */
};

/* The result of testing a candidate (candidate.h). */
struct cmn_trial {
    const char *name;
    enum { CMN_WORKS, CMN_REFUSES, CMN_FAILS } result;
    char why[CMN_LINE];
};

struct cmn_findings {
    struct cmn_host_info *rank; /* host info of each rank, in order */
    int ranks;
    struct cmn_pair *pair;
    int pairs;
    struct cmn_trial *trial;
    int trials;
    const char *choice; /* why no communicator could be chosen; NULL: one was */
};

enum { CMN_DIAGNOSES = 64 };

struct cmn_diagnoses {
    int n, faults;
    struct cmn_diagnosis {
        int fault; /* 1: a fault; 0: a note, e.g. that it works, but slower than it could */
        char text[512];
    } item[CMN_DIAGNOSES];
};

/* Local. Fills *d with everything that is wrong, the likeliest cause first; without an entry all is
 * well. Entries that do not fit are left out, but d->faults counts the faults among them. */
void cmn_diagnose_job(const struct cmn_findings *f, struct cmn_diagnoses *d);

/* Local. Returns whether Open MPI's settings let its TCP transport use this interface. */
int cmn_nic_used(const struct cmn_host_info *info, const struct cmn_nic *nic);

/* Local. Writes cores in the form "0-3,8", cut to fit. Returns `text`. */
const char *cmn_cores_text(const cpu_set_t *cores, char *text, size_t bytes);

/* Local. Writes an IPv4 address in the form "10.0.0.1". Returns `text`. */
const char *cmn_address_text(uint32_t address, char *text, size_t bytes);

#endif
