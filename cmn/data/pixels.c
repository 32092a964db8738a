#include "data/pixels.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/whole_image.h"

/* ---- the decoder ---- */

static _Thread_local size_t most_memory; /* bytes that a block of the decoder may grow to */

/* Memory that a damaged file leaves unwritten is 0, so that its pixels are the same each time. A
 * PNG says first how many bytes its data will become, and does not keep to it. */
static void *grow(void *block, size_t bytes, size_t more)
{
    unsigned char *grown = more > most_memory ? NULL : realloc(block, more);

    if (grown && more > bytes) {
        memset(grown + bytes, 0, more - bytes);
    }
    return grown;
}

/* Other formats' decoders trust their files. */
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#define STBI_NO_LINEAR
#define STBI_NO_STDIO
#define STBI_ASSERT(condition) ((void)0) /* damaged files do not meet them */
#define STBI_MALLOC(bytes) calloc(1, bytes)
#define STBI_REALLOC_SIZED(block, bytes, more) grow(block, bytes, more)
#define STBI_FREE(block) free(block)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#pragma GCC diagnostic ignored "-Wunused-function" /* it declares those of other formats, too */
#include <stb/stb_image.h>

/* ---- files ---- */

/* Returns all bytes of an image file, behind which is room for a palette, or NULL; of one that is
 * not decoded, only the first ones are read. A signal ends neither open() nor read(): those of a
 * FIFO, FUSE and NFS would return early. */
enum { PALETTE = 3 * 256 };

static unsigned char *read_file(const char *name, size_t *size, const char **reason)
{
    const struct cmn_image_format *format;
    unsigned char *data = NULL;
    size_t room, want;
    struct stat about;
    ssize_t n = 1;
    int fd;

    do {
        fd = open(name, O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    *reason = NULL;
    *size = 0;
    if (fd < 0 || fstat(fd, &about)) {
        *reason = strerror(errno);
    } else if (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode)) {
        *reason = "a device, not a file";
    }
    room = *reason || !S_ISREG(about.st_mode) ? 1 << 16 : (size_t)about.st_size + 1;
    while (!*reason && n) {
        if (!data || *size == room) {
            unsigned char *more;
            room = data ? 2 * room : room;
            more = room > INT_MAX ? NULL : realloc(data, room + PALETTE);
            if (!more) {
                *reason =
                    room > INT_MAX ? "the file has more than 2 GiB" : "no memory for the file";
                break;
            }
            data = more;
        }
        want = *size < CMN_IMAGE_HEAD && room - *size > 1 << 16 ? 1 << 16 : room - *size;
        n = read(fd, data + *size, want);
        if (n < 0 && errno != EINTR) {
            *reason = strerror(errno);
        }
        *size += n > 0 ? (size_t)n : 0;
        format = cmn_image_format(data, *size);
        if (*size >= CMN_IMAGE_HEAD && (!format || !format->check)) {
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    if (!*reason && !*size) {
        *reason = "an empty file";
    }
    if (*reason) {
        free(data);
        data = NULL;
    }
    return data;
}

/* The decoder has no colours for entries that the palette of a PNG lacks: they become black, as in
 * other programs. Returns the file's new size. */
static size_t fill_palette(unsigned char *data, size_t size, size_t at)
{
    size_t bytes = (size_t)data[at + 2] << 8 | data[at + 3], end = at + 8 + bytes;

    if (data[at] || data[at + 1] || bytes >= PALETTE) {
        return size;
    }
    memmove(data + end + PALETTE - bytes, data + end, size - end);
    memset(data + end, 0, PALETTE - bytes);
    data[at + 2] = PALETTE >> 8;
    data[at + 3] = PALETTE & 255;
    return size + PALETTE - bytes;
}

/* The decoder takes what is between the head of a BMP and its pixels for pixels, or refuses it.
 * Returns the file's new size. */
static size_t close_gap(unsigned char *data, size_t size, size_t pixels, size_t gap)
{
    memmove(data + pixels - gap, data + pixels, size - pixels);
    data[10] = (unsigned char)(pixels - gap); /* a head has fewer than 256 bytes */
    data[11] = data[12] = data[13] = 0;
    return size - gap;
}

/* ---- pixels ---- */

const char *cmn_pixels_too_large(int w, int h, int channels)
{
    /* Bytes for each value of the image: 1 packed as in the decoder, 1 unpacked, 4 as a float. An
     * image that needs less than `small` is not worth reading the system's files. */
    const double bytes = 6, small = 1 << 28;
    static _Thread_local char text[128];
    double needs = bytes * w * h * channels, free_bytes;

    if (needs < small) {
        return NULL;
    }
    free_bytes = (double)cmn_memory_free();
    if (needs <= free_bytes / 2) {
        return NULL;
    }
    snprintf(text, sizeof text, "%d x %d pixels take %.1f GB of memory, and %.1f GB are free", w, h,
             needs / 1e9, free_bytes / 1e9);
    return text;
}

static _Thread_local int turned;

int cmn_pixels_turned(void)
{
    return turned;
}

static unsigned char *decode(const struct cmn_image_format *format, unsigned char *data,
                             size_t size, int channels, int *w, int *h, int *c, const char **reason)
{
    struct cmn_whole_image image = {0};
    unsigned char *pixels;
    int most;

    *reason = format->check(data, size, &image);
    most = channels > image.channels ? channels : image.channels;
    if (!*reason) {
        *reason = (double)image.width * image.height * most > INT_MAX
                      ? "too large"
                      : cmn_pixels_too_large(image.width, image.height, most);
    }
    if (*reason) {
        return NULL;
    }
    turned = image.orientation > 1;
    size = image.palette ? fill_palette(data, size, image.palette) : size;
    size = image.gap ? close_gap(data, size, image.pixels, image.gap) : size;
    /* Interlaced pixels take up to twice the size, and the decoder doubles its blocks. */
    most_memory =
        8 * ((size_t)image.width + 1) * (size_t)image.height * (size_t)most + 2 * size + 4096;
    pixels = stbi_load_from_memory(data, (int)size, w, h, c, channels);
    *c = channels ? channels : *c;
    *reason = pixels ? NULL : stbi_failure_reason();
    return pixels;
}

unsigned char *cmn_pixels_load(const char *file, int channels, int *w, int *h, int *c,
                               const char **reason)
{
    static _Thread_local char text[192];
    unsigned char *pixels = NULL;
    size_t size;
    unsigned char *data = read_file(file, &size, reason);
    const struct cmn_image_format *format;

    if (!data) {
        return NULL;
    }
    format = cmn_image_format(data, size);
    if (!format) {
        *reason = "not a JPEG, PNG, BMP, PGM or PPM file";
    } else if (!format->check) {
        snprintf(text, sizeof text, "%s files are not supported; convert it to JPEG or PNG",
                 format->name);
        *reason = text;
    } else {
        pixels = decode(format, data, size, channels, w, h, c, reason);
        if (!pixels) {
            snprintf(text, sizeof text, "%s: %s", format->name, *reason ? *reason : "damaged");
            *reason = text;
        }
    }
    free(data);
    return pixels;
}

const char *cmn_pixels_cut(const char *file)
{
    static _Thread_local char text[64];
    struct cmn_whole_image image = {0};
    const struct cmn_image_format *format;
    const char *reason;
    size_t size;
    unsigned char *data = read_file(file, &size, &reason);
    int cut;

    format = data ? cmn_image_format(data, size) : NULL;
    cut = format && format->check && format->check(data, size, &image) == cmn_image_is_cut;
    free(data);
    if (!cut) {
        return NULL;
    }
    snprintf(text, sizeof text, "%s: %s", format->name, cmn_image_is_cut);
    return text;
}
