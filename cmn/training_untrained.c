/* A training whose last iteration was reached before it began, from a checkpoint or from weights that were given: what it would
 * overwrite. */
#include <stdio.h>
#include <sys/stat.h>

#include "log.h"
#include "training.h"

/* Images that the weights in a file have seen; 0 where there are none. */
static size_t seen_by(const char *name)
{
    int version[3], few;
    size_t seen = 0;
    struct stat st;
    FILE *file = !stat(name, &st) && S_ISREG(st.st_mode) ? fopen(name, "rb") : NULL;

    if (file && fread(version, sizeof *version, 3, file) == 3) {
        /* As parser.c reads it. */
        if (version[0] * 10 + version[1] >= 2 && version[0] < 1000 && version[1] < 1000) {
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

int cmn_training_newer(const struct cmn_training *t, size_t seen)
{
    static const char *const ends[] = {".weights", "_final.weights"};
    char name[2 * CMN_TEXT + 64];

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        snprintf(name, sizeof name, "%s/%s%s", t->session->backup, t->name, ends[i]);
        if (seen_by(name) > seen) {
            return cmn_fail("nothing is left to train, and %s has seen %zu images, more than the "
                            "%zu of what would be saved: it stays as it is (move it away, raise "
                            "max_batches, or start over with -clear)",
                            name, seen_by(name), seen);
        }
    }
    return 0;
}
