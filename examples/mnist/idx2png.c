/* idx2png IDX_DIR OUT_DIR PREFIX: turns the four idx files of MNIST (or of a data set of the
 * same shape) into what Darknet's classifier reads: one PNG per image, the label in its name,
 * and the lists of their paths.
 *
 *   OUT_DIR/train/00000_digit-5.png ...  OUT_DIR/train.list (PREFIX/train/00000_digit-5.png ...)
 *   OUT_DIR/valid/...                    OUT_DIR/valid.list
 *   OUT_DIR/labels.txt (digit-0 ... digit-9) */
#include "files.h"

#include <stdlib.h>

const char *program = "idx2png";

/* source: the name of the set inside the idx files; target: the name of its folder and list. */
static uint32_t convert(const char *from, const char *source, const char *to, const char *target,
                        const char *prefix)
{
    char name[64], path[PATH_SIZE], list_path[PATH_SIZE];
    struct idx images, labels;
    read_set(from, source, &images, &labels);

    join(path, "%s/%s", to, target);
    make_folder(path);
    join(list_path, "%s/%s.list", to, target);
    FILE *list = create(list_path);
    for (uint32_t i = 0; i < images.count; ++i) {
        unsigned label = labels.elements[i];
        snprintf(name, sizeof(name), "%s/%05u_digit-%u.png", target, i, label);
        join(path, "%s/%s", to, name);
        write_png(path, images.elements + (size_t)i * PIXELS, SIDE, SIDE, 1);
        fprintf(list, "%s/%s\n", prefix, name);
    }
    finish(list, list_path);
    free(images.bytes);
    free(labels.bytes);
    return images.count;
}

static void write_labels(const char *to)
{
    char path[PATH_SIZE];
    join(path, "%s/labels.txt", to);
    FILE *file = create(path);
    for (int i = 0; i < CLASSES; ++i)
        fprintf(file, "digit-%d\n", i);
    finish(file, path);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s IDX_DIR OUT_DIR PREFIX\n", argv[0]);
        return 2;
    }
    const char *from = argv[1], *to = argv[2], *prefix = argv[3];
    make_folder(to);
    uint32_t train = convert(from, "train", to, "train", prefix);
    uint32_t valid = convert(from, "t10k", to, "valid", prefix);
    write_labels(to);
    printf("  %u images to train with, %u to validate with\n", train, valid);
    return 0;
}
