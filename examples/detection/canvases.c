/* canvases IDX_DIR OUT_DIR PREFIX TRAIN VALID SEED: makes a set for detectors from the four idx
 * files of MNIST: TRAIN canvases with digits of MNIST's training set, VALID with digits of its
 * test set.
 *
 *   OUT_DIR/images/train_00000.png ...   OUT_DIR/labels/train_00000.txt ...   OUT_DIR/train.list
 *   OUT_DIR/images/valid_00000.png ...   OUT_DIR/labels/valid_00000.txt ...   OUT_DIR/valid.list
 *   OUT_DIR/digits.names
 *
 * Lists name images as PREFIX/images/.... A line of labels is Darknet's: class, then the box's
 * centre, width and height as parts of the canvas. */
#include "../mnist/files.h"
#include "canvas.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

const char *program = "canvases";

static uint64_t number(const char *text, const char *what, uint64_t low, uint64_t high)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || value < low || value > high)
        fail("%s: %s; a number from %" PRIu64 " to %" PRIu64 " is needed", what, text, low, high);
    return value;
}

static void write_labels(const char *path, const struct canvas *canvas)
{
    FILE *file = create(path);
    for (int i = 0; i < canvas->digits; ++i) {
        const struct box *b = &canvas->boxes[i];
        fprintf(file, "%d %.6f %.6f %.6f %.6f\n", b->label, (b->left + b->right) / (2. * CANVAS),
                (b->top + b->bottom) / (2. * CANVAS), (double)(b->right - b->left) / CANVAS,
                (double)(b->bottom - b->top) / CANVAS);
    }
    finish(file, path);
}

/* source: the name of the set inside the idx files; target: how its canvases and its list are
 * called. */
static void make_set(char **argv, const char *source, const char *target, uint32_t count,
                     uint64_t seed)
{
    const char *from = argv[1], *to = argv[2], *prefix = argv[3];
    char path[PATH_SIZE], list_path[PATH_SIZE];
    static struct canvas canvas;
    struct idx images, labels;
    read_set(from, source, &images, &labels);

    join(list_path, "%s/%s.list", to, target);
    FILE *list = create(list_path);
    unsigned digits = 0;
    for (uint32_t i = 0; i < count; ++i) {
        draw_canvas(&canvas, images.elements, labels.elements, images.count, seed, i);
        join(path, "%s/images/%s_%05u.png", to, target, i);
        write_png(path, canvas.pixels, CANVAS, CANVAS, 3);
        join(path, "%s/labels/%s_%05u.txt", to, target, i);
        write_labels(path, &canvas);
        fprintf(list, "%s/images/%s_%05u.png\n", prefix, target, i);
        digits += (unsigned)canvas.digits;
    }
    finish(list, list_path);
    if (!digits)
        fail("%s: the images of the set '%s' are blank", from, source);
    printf("  %s: %u canvases, %u digits\n", target, count, digits);
    free(images.bytes);
    free(labels.bytes);
}

static void write_names(const char *to)
{
    char path[PATH_SIZE];
    join(path, "%s/digits.names", to);
    FILE *file = create(path);
    for (int i = 0; i < CLASSES; ++i)
        fprintf(file, "%d\n", i);
    finish(file, path);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s IDX_DIR OUT_DIR PREFIX TRAIN VALID SEED\n", argv[0]);
        return 2;
    }
    char path[PATH_SIZE];
    uint32_t train = (uint32_t)number(argv[4], "TRAIN", 1, 99999),
             valid = (uint32_t)number(argv[5], "VALID", 1, 99999);
    /* The two sets have seeds of their own: no two of their canvases are equal. */
    uint64_t seed = number(argv[6], "SEED", 0, UINT64_MAX / 2 - 1);

    make_folder(argv[2]);
    join(path, "%s/images", argv[2]);
    make_folder(path);
    join(path, "%s/labels", argv[2]);
    make_folder(path);
    make_set(argv, "train", "train", train, 2 * seed);
    make_set(argv, "t10k", "valid", valid, 2 * seed + 1);
    write_names(argv[2]);
    return 0;
}
