/* random: random numbers that depend on neither threads nor timing. Local, without locks.
 *
 * Each draw comes from a stream that is named by its purpose, so equal seeds give equal runs. */
#ifndef CMN_RANDOM_H
#define CMN_RANDOM_H

#include <stdint.h>

/* Returns a well mixed 64-bit hash of its arguments (finaliser of splitmix64: Steele, Lea, Flood,
 * "Fast splittable pseudorandom number generators", OOPSLA 2014). */
uint64_t cmn_random_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

/* Returns the next 64 bits of the stream in *state. */
uint64_t cmn_random_step(uint64_t *state);

/* Seeds the main thread's two streams: `common` is equal on all ranks (weights, resizing, learning
 * rate), and `own` differs by rank (dropout, crops). The calling thread starts on `common`. A
 * training that resumes on other ranks after `when` steps gets a stream `own` that no rank had
 * before; `when` is 0 otherwise. */
void cmn_random_open(uint64_t seed, int rank, uint64_t when);

/* Returns the state of the stream `own`, or of `common`. Only the main thread may read and
 * overwrite it. */
uint64_t *cmn_random_stream(int is_own);

/* Switch the main thread to the stream `common` or `own`. */
void cmn_random_common(void);
void cmn_random_own(void);

enum cmn_random_purpose {
    CMN_RANDOM_IMAGE = 3,
    CMN_RANDOM_EVALUATION,
    CMN_RANDOM_DEVICE,
    CMN_RANDOM_MICRO_BATCH = 7
};

/* Switches the calling thread to the stream named (purpose, number). It gives the same numbers
 * whenever and wherever it is named. */
void cmn_random_named(enum cmn_random_purpose purpose, uint64_t number);

/* Returns a seed from the operating system, 0 to 2^31 - 1. */
unsigned long cmn_random_draw_seed(void);

/* Returns 0 to 2^31 - 1 from the calling thread's stream, as rand() does with glibc. */
int cmn_random_int(void);

#endif
