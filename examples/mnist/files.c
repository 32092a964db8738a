#include "files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

struct sink {
    FILE *file;
    const char *path;
};

void fail(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void join(char path[PATH_SIZE], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path, PATH_SIZE, format, args);
    va_end(args);
    if (length < 0 || length >= PATH_SIZE)
        fail("%.60s...: the path is too long", path);
}

void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0)
        fail("%s: %s", path, strerror(errno));
}

FILE *create(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail("%s: %s", path, strerror(errno));
    return file;
}

void finish(FILE *file, const char *path)
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

void read_set(const char *folder, const char *source, struct idx *images, struct idx *labels)
{
    char name[64];
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", source);
    *images = read_idx(folder, name, 3);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", source);
    *labels = read_idx(folder, name, 1);
    if (images->count != labels->count)
        fail("%s: %u images but %u labels in the set '%s'", folder, images->count, labels->count,
             source);
    for (uint32_t i = 0; i < labels->count; ++i)
        if (labels->elements[i] >= CLASSES)
            fail("%s: item %u of the set '%s' has the label %u; labels go from 0 to %d", folder, i,
                 source, labels->elements[i], CLASSES - 1);
}

void write_png(const char *path, const uint8_t *pixels, int width, int height, int channels)
{
    struct sink sink = {.file = create(path), .path = path};
    if (!stbi_write_png_to_func(put, &sink, width, height, channels, pixels, width * channels))
        fail("%s: the image cannot be encoded", path);
    finish(sink.file, path);
}
