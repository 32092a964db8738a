/* libFuzzer's side: FUZZ_TARGET names the target. */
#include <err.h>
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_memory.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("FUZZ_TARGET");

    (void)argc;
    (void)argv;
    target = name ? fuzz_target_find(name) : NULL;
    if (!target) {
        errx(1, "FUZZ_TARGET: no such target");
    }
    fuzz_memory_limit = target->memory << 20;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_run(target, data, size);
    fuzz_memory_forget();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (target->run == fuzz_training && seed % 8) {
        return fuzz_training_mutate(data, size, most, seed);
    }
    return LLVMFuzzerMutate(data, size, most);
}
