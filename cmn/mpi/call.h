/* call: checked calls of MPI, and messages of any size.
 *
 * While such a call runs, this rank counts as waiting for others (base/status.h). */
#ifndef CMN_CALL_H
#define CMN_CALL_H

#include <mpi.h>
#include <stddef.h>

#include "base/status.h"

/* MPICH's MPI_STATUSES_IGNORE is the address 1, which GCC takes for an array that is too small. */
#if defined(MPICH_VERSION) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

/* MPI_CALL(MPI_Barrier(comm)) ends the job if the call fails, with "MPI_Barrier: <MPI's text>".
 * This counts as the loss of a peer, unless the call itself was wrong or memory is short. */
#define MPI_CALL(call) (cmn_status_wait_begin(), cmn_mpi_require((call), #call))
void cmn_mpi_require(int code, const char *call);

/* The maximum number of elements in one call of MPI: counts are ints, and the bytes should fit an
 * int, too. */
enum { CMN_MPI_CHUNK = 1 << 28 };

/* Collective over the group, blocking. Broadcasts rank 0's n elements at `data`. n may exceed an
 * int. */
void cmn_mpi_bcast(void *data, size_t n, MPI_Datatype type, MPI_Comm group);

/* The default number of floats in one call of MPI_Allreduce. It bounds the temporary buffer that
 * Open MPI allocates in each call. Of 1/4 to 8 MiB, 4 MiB took the least time
 * (bench/README.md). */
enum { CMN_MPI_FLOATS = 1024 * 1024 };

/* Collective over the group, blocking. Sums n floats at `data` over the ranks, in place, by
 * MPI_Allreduce with at most `most` (<= CMN_MPI_CHUNK) floats per call. For sums by our own
 * messages see transports/sums.h. */
void cmn_mpi_allreduce(float *data, size_t n, size_t most, MPI_Comm group);

/* Blocking. Send and receive `bytes` bytes, which may exceed an int, from one rank of the group to
 * another. Both must pass the same `bytes`. */
void cmn_mpi_send(const void *data, size_t bytes, int to, int tag, MPI_Comm group);
void cmn_mpi_recv(void *data, size_t bytes, int from, int tag, MPI_Comm group);

/* Collective, blocking. Returns the lowest rank that calls with `bad` != 0, or -1 if none does. */
int cmn_mpi_first_bad(int bad, MPI_Comm group);

/* Collective, blocking. Returns 0 if all ranks call with 0. Otherwise returns -1 on all ranks, with
 * the reason (base/log.h) of the lowest rank that does not: a rank that failed by itself would leave
 * the others waiting. */
int cmn_mpi_all_succeeded(int result, MPI_Comm group);

#endif
