/* Calls of MPI that are checked, and messages of any size. While such a call runs, this rank
 * counts as waiting for others (base/status.h). */
#ifndef CMN_CALL_H
#define CMN_CALL_H

#include <mpi.h>
#include <stddef.h>

#include "base/status.h"

/* MPICH's MPI_STATUSES_IGNORE is the address 1: GCC takes it for an array that is too small. */
#if defined(MPICH_VERSION) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

/* MPI_CALL(MPI_Barrier(comm)): ends the job when the call fails, with "MPI_Barrier: <MPI's
 * text>". That is the loss of a peer unless the call itself was wrong or memory is short. */
#define MPI_CALL(call) (cmn_status_wait_begin(), cmn_mpi_require((call), #call))
void cmn_mpi_require(int code, const char *call);

/* The same for a caller that can go on: 0, or -1 with a reason (base/log.h). */
#define cmn_mpi_check(code, what) (cmn_status_wait_begin(), cmn_mpi_checked((code), (what)))
int cmn_mpi_checked(int code, const char *what);

/* The most elements that one call of MPI is given: counts are ints, and bytes should fit them
 * too. */
enum { CMN_MPI_CHUNK = 1 << 28 };

/* Collective over the group, blocking. The n elements of rank 0 at `data` go to all; n may
 * exceed an int. */
void cmn_mpi_bcast(void *data, size_t n, MPI_Datatype type, MPI_Comm group);

/* Floats in a call of MPI_Allreduce where no other length is asked for. It bounds the temporary that
 * Open MPI allocates in each call. Of 1/4 to 8 MiB, 4 MiB took the least time
 * (docs/reference/performance.md). */
enum { CMN_MPI_FLOATS = 1024 * 1024 };

/* Collective over the group, blocking. The sum of n floats at `data`, in place, by MPI_Allreduce
 * with at most `most` (<= CMN_MPI_CHUNK) floats in a call. Sums by messages of our own:
 * transports/sums.h. */
void cmn_mpi_allreduce(float *data, size_t n, size_t most, MPI_Comm group);

/* Blocking. `bytes` of any size from one rank of the group to another, which both know. */
void cmn_mpi_send(const void *data, size_t bytes, int to, int tag, MPI_Comm group);
void cmn_mpi_recv(void *data, size_t bytes, int from, int tag, MPI_Comm group);

/* Collective, blocking. The lowest rank that calls with `bad` != 0; -1 when none does. */
int cmn_mpi_first_bad(int bad, MPI_Comm group);

#endif
