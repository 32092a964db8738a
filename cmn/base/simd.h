/* Loops over floats that use wider vectors where the processor has them: put CMN_VECTORS before a static function.
 * Not fused multiply-add: its other rounding would make hosts of different kinds disagree in the last bit. The
 * sanitizers cannot see through such functions. */
#ifndef CMN_VECTORS_H
#define CMN_VECTORS_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CMN_VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define CMN_VECTORS
#endif

#endif
