/* A stand-in for cuRAND's header (see cuda_runtime.h): what Darknet's cuda.c asks for. */
#ifndef TESTS_FAKE_CURAND_H
#define TESTS_FAKE_CURAND_H

#include <stddef.h>

typedef enum { CURAND_STATUS_SUCCESS = 0 } curandStatus_t;
typedef enum { CURAND_RNG_PSEUDO_DEFAULT = 100 } curandRngType_t;
typedef struct fake_generator *curandGenerator_t;

#ifdef __cplusplus
extern "C" {
#endif

curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type);
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed);
curandStatus_t curandGenerateUniform(curandGenerator_t generator, float *to, size_t n);

#ifdef __cplusplus
}
#endif

#endif
