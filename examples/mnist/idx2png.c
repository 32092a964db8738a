/*
 * idx2png IDX_DIR OUT_DIR PREFIX: turns the four idx files of MNIST (or of a data set of the same shape) into what
 * Darknet's classifier reads: one PNG per image, the label in its name, and the lists of their paths.
 *
 *   OUT_DIR/train/00000_digit-5.png ...  OUT_DIR/train.list (PREFIX/train/00000_digit-5.png ...)
 *   OUT_DIR/valid/...                    OUT_DIR/valid.list         OUT_DIR/labels.txt (digit-0 ... digit-9)
 *
 * An idx file: two zero bytes, the element type (8: unsigned byte), the number of dimensions, each dimension as a
 * big-endian 32-bit number, the elements.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, PATH_SIZE = 4096 };

struct idx {
    uint8_t *bytes; /* the whole file */
    const uint8_t *elements;
    uint32_t count;
};

struct sink {
    FILE *file;
    const char *path;
};

_Noreturn static void fail(const char *format, ...)
{
    va_list args;
    fputs("idx2png: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

__attribute__((format(printf, 2, 3))) static void join(char path[PATH_SIZE], const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path, PATH_SIZE, format, args);
    va_end(args);
    if (length < 0 || length >= PATH_SIZE)
        fail("%.60s...: the path is too long", path);
}

static FILE *create(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail("%s: %s", path, strerror(errno));
    return file;
}

/* A full disk may show only when the last bytes are flushed. */
static void finish(FILE *file, const char *path)
{
    int bad = ferror(file);
    if (fclose(file) != 0 || bad)
        fail("%s: cannot be written: %s", path, strerror(errno));
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint8_t *read_whole(const char *path, size_t *size)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &status) != 0)
        fail("%s: %s", path, strerror(errno));
    *size = (size_t)status.st_size;
    uint8_t *bytes = malloc(*size + 1);
    if (!bytes)
        fail("%s: no memory for %zu bytes", path, *size);
    if (fread(bytes, 1, *size, file) != *size)
        fail("%s: cannot be read: %s", path,
             ferror(file) ? strerror(errno) : "it is shorter than its size");
    fclose(file);
    return bytes;
}

/* dimensions: 3 for images, which must be SIDE x SIDE, 1 for labels. */
static struct idx read_idx(const char *directory, const char *name, unsigned dimensions)
{
    char path[PATH_SIZE];
    size_t size, header = 4 + 4 * (size_t)dimensions;
    join(path, "%s/%s", directory, name);
    uint8_t *bytes = read_whole(path, &size);
    if (size < header || bytes[0] || bytes[1] || bytes[2] != 8 || bytes[3] != dimensions)
        fail("%s: not an idx file of bytes with %u dimension%s", path, dimensions,
             dimensions > 1 ? "s" : "");

    struct idx idx = {.bytes = bytes, .elements = bytes + header, .count = big_endian(bytes + 4)};
    size_t each = 1;
    if (dimensions == 3) {
        uint32_t rows = big_endian(bytes + 8), columns = big_endian(bytes + 12);
        if (rows != SIDE || columns != SIDE)
            fail("%s: images of %u x %u; %d x %d are needed", path, columns, rows, SIDE, SIDE);
        each = PIXELS;
    }
    if (idx.count == 0 || size - header != idx.count * each)
        fail("%s: says %u items, which takes %zu bytes, but holds %zu", path, idx.count,
             idx.count * each, size - header);
    return idx;
}

static void put(void *context, void *data, int size)
{
    struct sink *sink = context;
    if (fwrite(data, 1, (size_t)size, sink->file) != (size_t)size)
        fail("%s: cannot be written: %s", sink->path, strerror(errno));
}

static void write_png(const char *path, const uint8_t *pixels)
{
    struct sink sink = {.file = create(path), .path = path};
    if (!stbi_write_png_to_func(put, &sink, SIDE, SIDE, 1, pixels, SIDE))
        fail("%s: the image cannot be encoded", path);
    finish(sink.file, path);
}

/* source: the name of the set inside the idx files; target: the name of its folder and list. */
static uint32_t convert(const char *from, const char *source, const char *to, const char *target,
                        const char *prefix)
{
    char name[64], path[PATH_SIZE], list_path[PATH_SIZE];
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", source);
    struct idx images = read_idx(from, name, 3);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", source);
    struct idx labels = read_idx(from, name, 1);
    if (images.count != labels.count)
        fail("%s: %u images but %u labels in the set '%s'", from, images.count, labels.count,
             source);

    join(path, "%s/%s", to, target);
    if (mkdir(path, 0777) != 0)
        fail("%s: %s", path, strerror(errno));
    join(list_path, "%s/%s.list", to, target);
    FILE *list = create(list_path);
    for (uint32_t i = 0; i < images.count; ++i) {
        unsigned label = labels.elements[i];
        if (label >= CLASSES)
            fail("%s: item %u of the set '%s' has the label %u; labels go from 0 to %d", from, i,
                 source, label, CLASSES - 1);
        snprintf(name, sizeof(name), "%s/%05u_digit-%u.png", target, i, label);
        join(path, "%s/%s", to, name);
        write_png(path, images.elements + (size_t)i * PIXELS);
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
    if (mkdir(to, 0777) != 0)
        fail("%s: %s", to, strerror(errno));
    uint32_t train = convert(from, "train", to, "train", prefix);
    uint32_t valid = convert(from, "t10k", to, "valid", prefix);
    write_labels(to);
    printf("  %u images to train with, %u to validate with\n", train, valid);
    return 0;
}
