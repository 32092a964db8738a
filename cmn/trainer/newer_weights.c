/* A training that goes on from a checkpoint behind which nothing was left to train: what it would overwrite. */
#include <stdio.h>
#include <sys/stat.h>

#include "checkpoint/reader.h"
#include "base/log.h"
#include "trainer/trainer.h"
#include "trainer/checkpointing.h"

/* Images that the weights in a file have seen, as parser.c reads it; 0 where there are none. */
static size_t seen_by(const char *name)
{
    int version[3], few;
    size_t seen = 0;
    FILE *file = fopen(name, "rb");

    if (file && fread(version, sizeof *version, 3, file) == 3) {
        if (version[0] < 1000 && version[1] < 1000 && 10L * version[0] + version[1] >= 2) {
            seen = fread(&seen, sizeof seen, 1, file) == 1 ? seen : 0;
        } else {
            seen = fread(&few, sizeof few, 1, file) == 1 && few > 0 ? (size_t)few : 0;
        }
    }
    if (file) {
        fclose(file);
    }
    return seen;
}

/* Weights of more images that are older were there when this training began, such as those that it was given then. */
static int is_later(const char *name, const char *than)
{
    struct stat a, b;

    return !stat(name, &a) && S_ISREG(a.st_mode) && !stat(than, &b) &&
           (a.st_mtim.tv_sec != b.st_mtim.tv_sec ? a.st_mtim.tv_sec > b.st_mtim.tv_sec
                                                 : a.st_mtim.tv_nsec > b.st_mtim.tv_nsec);
}

int cmn_trainer_newer(const struct cmn_trainer *t, const char *file, size_t seen)
{
    const struct cmn_checkpointing *c = t->checkpoint;

    if (c && c->file && is_later(file, cmn_checkpoint_path(c->file)) && seen_by(file) > seen) {
        return cmn_fail("nothing is left to train, and %.700s is newer and has seen %zu images, "
                        "more than the %zu of the checkpoint: it stays as it is (move it away, "
                        "raise max_batches, or start over with -clear)",
                        file, seen_by(file), seen);
    }
    return 0;
}
