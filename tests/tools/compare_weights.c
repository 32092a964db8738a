/* compare_weights A B: prints "seen A B" and "relative-l2 X" of two of Darknet's weights files.
 * Ends with 1 when they cannot be compared: other version, other length, unreadable. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct weights {
    int32_t version[3];
    uint64_t seen;
    float *value;
    size_t n;
};

static int bad(const char *file, const char *why)
{
    fprintf(stderr, "%s: %s\n", file, why);
    return -1;
}

static int load(const char *name, struct weights *w)
{
    FILE *file = fopen(name, "rb");
    size_t room = 0, got;

    if (!file) {
        return bad(name, "cannot be read");
    }
    if (fread(w->version, sizeof w->version, 1, file) != 1 ||
        fread(&w->seen, sizeof w->seen, 1, file) != 1) {
        return bad(name, "no header");
    }
    do {
        room += 1 << 16;
        w->value = realloc(w->value, room * sizeof *w->value);
        if (!w->value) {
            return bad(name, "out of memory");
        }
        got = fread(w->value + w->n, sizeof *w->value, room - w->n, file);
        w->n += got;
    } while (w->n == room);
    fclose(file);
    return w->n ? 0 : bad(name, "no weights");
}

int main(int argc, char **argv)
{
    struct weights a = {{0}, 0, NULL, 0}, b = {{0}, 0, NULL, 0};
    double difference = 0, norm = 0;

    if (argc != 3 || load(argv[1], &a) || load(argv[2], &b)) {
        return 1;
    }
    if (a.version[0] != b.version[0] || a.version[1] != b.version[1] || a.n != b.n) {
        fprintf(stderr, "%s and %s are weights of different networks\n", argv[1], argv[2]);
        return 1;
    }
    for (size_t i = 0; i < a.n; i++) {
        double d = (double)a.value[i] - (double)b.value[i];
        difference += d * d;
        norm += (double)a.value[i] * (double)a.value[i];
    }
    printf("seen %llu %llu\n", (unsigned long long)a.seen, (unsigned long long)b.seen);
    /* Written so that NaN is no agreement. */
    printf("relative-l2 %.6e\n", norm > 0 ? sqrt(difference / norm) : HUGE_VAL);
    free(a.value);
    free(b.value);
    return 0;
}
