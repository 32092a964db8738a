/* simd: CMN_VECTORS, for static functions.
 *
 * CMN_VECTORS in front of a function compiles it for AVX2 as well, and the version is chosen at run
 * time. Fused multiply-add stays off, because its rounding would make hosts with different
 * processors differ in the last bit. Sanitizers do not support such functions. */
#ifndef CMN_SIMD_H
#define CMN_SIMD_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CMN_VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define CMN_VECTORS
#endif

#endif
