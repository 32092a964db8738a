/* libFuzzer's side: FUZZ_TARGET names the target. */
#include <err.h>
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_memory.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
