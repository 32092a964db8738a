/* Host info: what one rank knows about itself, its machine and its GPU. The struct has no pointers,
 * so ranks can send it as bytes. */
#ifndef CMN_HOST_INFO_H
#define CMN_HOST_INFO_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/nics.h"
#include "trainer/session.h"

enum { CMN_NAME = 64, CMN_LINE = 256 };

struct cmn_host_info {
    char host[CMN_NAME];
    int rank, intra_rank, intra_size, inter_rank, inter_size;
    uint64_t stack; /* equal for ranks with the same kernel and network namespace */

    cpu_set_t cores; /* cores to which this rank is bound; empty: unknown */
    int online;      /* number of cores of the machine */
    int blas_threads;
    int launched; /* number of processes that the launcher started; 1 without a launcher */

    char mpi[CMN_LINE];     /* the library's own description */
    char version[CMN_NAME]; /* of darknet-cmn */
    uint64_t program;       /* hash of the program's file; 0: it cannot be read */

    int device; /* number of the GPU, or -1 */
    int gpus;   /* number of GPUs that this rank may use; -1: not built for GPUs */
    char cuda[CMN_LINE];
    char nccl[CMN_NAME];

    int nics;
    struct cmn_nic nic[CMN_NICS];              /* only IPv4 */
    char include[CMN_LINE], exclude[CMN_LINE]; /* Open MPI's btl_tcp_if_include, _exclude */

    size_t memory_free;        /* bytes */
    size_t shm_size, shm_free; /* of /dev/shm, in bytes */
    char window[CMN_LINE];     /* why a shared window could not be opened; "": it could */
};

/* Fills *info. Collective over the node, blocking, because the ranks open a shared window
 * together. */
void cmn_host_info_gather(struct cmn_host_info *info, const struct cmn_session *s);

/* Local. Prints the versions of this program and of the libraries that it runs with. MPI need not
 * be initialized. */
void cmn_host_info_print_version(FILE *out);

#endif
