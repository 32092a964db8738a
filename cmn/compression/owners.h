/* Sums of selections among many ranks, at most 4n + 4k bytes for each however many they are: each value goes to the
 * rank that owns its slice of the shard, which adds them in the order of the ranks; then all get
 * all sums that are not 0. Nothing is rounded: the bits are those of adding each rank's whole
 * selection in the order of the ranks. */
#ifndef CMN_OWNERS_H
#define CMN_OWNERS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

/* Values of one rank, as topk sends them: count[blocks], place[k], value[k]; the places in a block
 * of CMN_SELECTED_BLOCK floats in 2 bytes, the values in bf16. */
enum { CMN_SELECTED_BLOCK = 65536 };

/* Local. Bytes of k values of n. */
size_t cmn_selected_bytes(size_t n, size_t k);
/* Local. Adds them to n floats. Returns their bytes. */
size_t cmn_selected_add(float *sum, size_t n, const unsigned char *from);

/* Local. The floats of a slice that are not 0, as its owner sends them: in bf16 those that it
 * holds, the others in fp32, or the whole slice in fp32 where that is less. cmn_merged_write()
 * returns the bytes, at most cmn_merged_most(); cmn_merged_read() fills a slice that is 0, and
 * returns the same. Multiples of 4. */
size_t cmn_merged_most(size_t n, size_t values);
size_t cmn_merged_write(const float *sum, size_t n, unsigned char *to);
size_t cmn_merged_read(float *sum, size_t n, const unsigned char *from);
size_t cmn_merged_bytes(size_t n, const unsigned char *from);

/* Local. Whether a rank is to get its sums this way, and not everybody's selection, for k of n
 * values of each rank. */
int cmn_owners_pay(int ranks, size_t n, size_t k);

/* Of several of them: bytes given to MPI, and messages that were completed. */
struct cmn_traffic {
    unsigned long long sent, moved;
};

/* One shard's exchange. */
struct cmn_owners;

/* Local. For n floats, at most `most` values of each rank; tags tag and tag + 1 of comm are its own. The
 * sums travel by that algorithm. What is sent is counted in *traffic, which outlives it. It has room for what
 * each rank may send, and for all merged slices. */
struct cmn_owners *cmn_owners_open(MPI_Comm comm, int tag, size_t n, size_t most,
                                   enum cmn_exchange_by by, struct cmn_traffic *traffic);

/* Local; nothing is in flight. NULL is allowed. */
void cmn_owners_close(struct cmn_owners *o);

/* Collective in order, not blocking; nothing of it is in flight. Receives from now on. */
void cmn_owners_begin(struct cmn_owners *o);
/* Local, not blocking. Once after begin: sends k values of this rank, in the format above. */
void cmn_owners_give(struct cmn_owners *o, const unsigned char *selected, size_t k);
/* Local, not blocking. Advances; `sum`, n floats that are 0 from the first call after give on, are
 * the sums when it returns 1. */
int cmn_owners_advance(struct cmn_owners *o, float *sum);
/* Local. The rank that it waits for, or -1 where others have not taken what was sent. */
int cmn_owners_wait_for(const struct cmn_owners *o);

#endif
