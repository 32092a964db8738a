/* CMN_VECTORS before a static function compiles it for AVX2 as well and picks the version at run
 * time. Without fused multiply-add: its rounding would make hosts with different processors
 * disagree in the last bit. Sanitizers do not support such functions. */
#ifndef CMN_SIMD_H
#define CMN_SIMD_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CMN_VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define CMN_VECTORS
#endif

#endif
