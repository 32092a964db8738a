#include "data/whole_image.h"

#include <ctype.h>
#include <string.h>

const char cmn_image_is_cut[] = "the file ends before the last pixel";
const char cmn_image_is_short[] = "the data end before the last pixel";

static unsigned big(const unsigned char *p, int bytes)
{
    unsigned n = 0;

    while (bytes--) {
        n = n << 8 | *p++;
    }
    return n;
}

static unsigned little(const unsigned char *p, int bytes)
{
    unsigned n = 0;

    while (bytes--) {
        n = n << 8 | p[bytes];
    }
    return n;
}

/* These are the limits of a JPEG: the decoder computes with ints. */
enum { MOST_PIXELS = 65535 };

static const char *check_sides(struct cmn_whole_image *image, unsigned width, unsigned height,
                               int wide)
{
    if (!width || !height) {
        return "no pixels";
    }
    /* Pixels of 16 bits take four colours of two bytes on their way. */
    if (width > MOST_PIXELS || height > MOST_PIXELS || (wide && (double)width * height > 1 << 27)) {
        return "too large";
    }
    image->width = (int)width;
    image->height = (int)height;
    return NULL;
}

/* ---- JPEG ---- */

struct jpeg {
    int components, progressive;
    int id[4], h[4], v[4], most_h, most_v; /* of each component, and the most of them */
    unsigned tables;                       /* bit 4 * class + number: there is such a table */
    unsigned scanned;                      /* bit i: component i had a scan for its averages */
    unsigned interval;                     /* blocks between restart marks; 0: there are none */
    unsigned marks;                        /* restart marks that the scan lacks still */
    size_t bytes;                          /* at least so many has the scan */
};

static const char *read_frame(struct jpeg *j, const unsigned char *p, size_t n,
                              struct cmn_whole_image *image)
{
    j->components = n > 5 ? p[5] : 0;
    if (j->components < 1 || j->components > 4 || n < 6 + 3 * (size_t)j->components) {
        return "damaged header";
    }
    image->channels = j->components == 1 ? 1 : 3;
    for (int i = 0; i < j->components; i++) {
        j->id[i] = p[6 + 3 * i];
        j->h[i] = p[7 + 3 * i] >> 4;
        j->v[i] = p[7 + 3 * i] & 15;
        j->most_h = j->h[i] > j->most_h ? j->h[i] : j->most_h;
        j->most_v = j->v[i] > j->most_v ? j->v[i] : j->most_v;
    }
    for (int i = 0; i < j->components; i++) {
        /* Smaller components are enlarged by whole factors. */
        if (!j->h[i] || !j->v[i] || j->most_h > 4 || j->most_v > 4 || j->most_h % j->h[i] ||
            j->most_v % j->v[i]) {
            return "bad H or V";
        }
    }
    return check_sides(image, big(p + 3, 2), big(p + 1, 2), 0);
}

/* The decoder has room for 256 codes of a table, and does not count them. */
static const char *read_tables(struct jpeg *j, const unsigned char *p, size_t n)
{
    for (size_t at = 0, codes; at < n; at += 17 + codes) {
        codes = 0;
        for (int i = 1; i <= 16 && n - at >= 17; i++) {
            codes += p[at + (size_t)i];
        }
        if (codes > 256 || n - at < 17 + codes || p[at] >> 4 > 1 || (p[at] & 15) > 3) {
            return "bad Huffman table";
        }
        j->tables |= 1u << ((p[at] >> 4) * 4 + (p[at] & 15));
    }
    return NULL;
}

static unsigned blocks(int pixels, int part, int whole)
{
    return ((unsigned)(pixels * part + whole - 1) / (unsigned)whole + 7) / 8;
}

static const char *read_scan(struct jpeg *j, const unsigned char *p, size_t n,
                             const struct cmn_whole_image *image)
{
    int parts = n ? p[0] : 0;
    unsigned units =
        ((unsigned)image->width + 8 * (unsigned)j->most_h - 1) / (8 * (unsigned)j->most_h) *
        (((unsigned)image->height + 8 * (unsigned)j->most_v - 1) / (8 * (unsigned)j->most_v));

    if (parts < 1 || parts > 4 || n < 4 + 2 * (size_t)parts) {
        return "damaged header";
    }
    for (int k = 0; k < parts; k++) {
        const unsigned char *part = p + 1 + 2 * k, *end = p + 1 + 2 * parts;
        int averages = !j->progressive || (end[0] == 0 && end[2] >> 4 == 0), i = 0;
        unsigned averages_table = 1u << (part[1] >> 4 & 3), others = 16u << (part[1] & 3);
        unsigned needed = !j->progressive ? averages_table | others : 0;
        while (i < j->components && j->id[i] != part[0]) {
            i++;
        }
        if (j->progressive) {
            needed = end[0] ? others : averages ? averages_table : 0;
        }
        if (i == j->components || (~j->tables & needed)) {
            return "a scan without its component or table";
        }
        j->scanned |= averages ? 1u << i : 0;
        if (!(j->scanned >> i & 1)) {
            return "bad scan order";
        }
        if (parts == 1) {
            units = blocks(image->width, j->h[i], j->most_h) *
                    blocks(image->height, j->v[i], j->most_v);
        }
    }
    j->marks = j->interval && units ? (units - 1) / j->interval : 0;
    /* An average takes a bit or more. Without them, a small file of many scans would take minutes. */
    j->bytes = p[1 + 2 * parts] == 0 ? units / 8 : 0;
    return NULL;
}

/* Finds the orientation that a camera has written into the EXIF part of a JPEG: 1 to 8; 0: none.
 * Source: CIPA DC-008, Exif 2.32, tag 0x0112 of the first directory, which is TIFF's. */
static int read_orientation(const unsigned char *p, size_t n)
{
    enum { HEAD = 6, ENTRY = 12, ORIENTATION = 0x112 };
    unsigned (*number)(const unsigned char *, int);
    size_t at, entries;

    if (n < HEAD + 8 || memcmp(p, "Exif\0", HEAD) != 0) {
        return 0;
    }
    p += HEAD;
    n -= HEAD;
    number = p[0] == 'M' ? big : little;
    at = number(p + 4, 4);
    if (at > n || n - at < 2) {
        return 0;
    }
    entries = number(p + at, 2);
    for (at += 2; entries-- && n - at >= ENTRY; at += ENTRY) {
        if (number(p + at, 2) == ORIENTATION) {
            return (int)number(p + at + 8, 2);
        }
    }
    return 0;
}

/* Marks of a JPEG. */
enum {
    BASELINE = 0xc0,
    EXTENDED,
    PROGRESSIVE,
    TABLES = 0xc4,
    END = 0xd9,
    SCAN,
    INTERVAL = 0xdd,
    EXIF = 0xe1
};

static const char *check_jpeg(const unsigned char *d, size_t size, struct cmn_whole_image *image)
{
    struct jpeg j = {0};
    const char *fault = NULL;
    size_t at = 2, n;

    for (; !fault; at += 2 + n) {
        size_t from = at;
        /* What is between the parts, and the data of a scan: 0 and restart marks belong to them. */
        for (; at + 1 < size &&
               (d[at] != 0xff || d[at + 1] == 0xff || d[at + 1] == 0 || (d[at + 1] & 0xf8) == 0xd0);
             at++) {
            j.marks -= j.marks && d[at] == 0xff && (d[at + 1] & 0xf8) == 0xd0;
        }
        if (at + 1 >= size || (d[at + 1] != END && size - at < 4)) {
            return cmn_image_is_cut;
        }
        if (j.marks || at - from < j.bytes) {
            return cmn_image_is_short;
        }
        if (d[at + 1] == END) {
            break;
        }
        j.bytes = 0;
        n = big(d + at + 2, 2);
        if (n < 2) {
            return "damaged header";
        }
        if (size - at - 2 < n) {
            return cmn_image_is_cut;
        }
        switch (d[at + 1]) {
        case BASELINE:
        case EXTENDED:
        case PROGRESSIVE:
            j.progressive = d[at + 1] == PROGRESSIVE;
            fault = j.components ? "damaged header" : read_frame(&j, d + at + 4, n - 2, image);
            break;
        case TABLES:
            fault = read_tables(&j, d + at + 4, n - 2);
            break;
        case EXIF:
            if (!image->orientation) { /* other parts may follow under the same mark */
                image->orientation = read_orientation(d + at + 4, n - 2);
            }
            break;
        case INTERVAL:
            j.interval = n == 4 ? big(d + at + 4, 2) : 0;
            break;
        case SCAN:
            fault = j.components ? read_scan(&j, d + at + 4, n - 2, image) : "damaged header";
            break;
        }
    }
    if (!fault && !j.components) {
        fault = "neither baseline nor progressive";
    }
    if (!fault && j.scanned != (1u << j.components) - 1) {
        fault = cmn_image_is_short;
    }
    return fault;
}

/* ---- PNG ---- */

static const char *check_png(const unsigned char *d, size_t size, struct cmn_whole_image *image)
{
    /* For each type of colour: its channels, and the depths that it can have, as a sum. */
    static const int channels[] = {1, 0, 3, 3, 2, 0, 4};
    static const int depths[] = {31, 0, 24, 15, 24, 0, 24};
    const unsigned char *head = NULL;
    size_t n;

    for (size_t at = 8;; at += 12 + n) {
        const unsigned char *type = d + at + 4;
        if (size - at < 8) {
            return cmn_image_is_cut;
        }
        if (!memcmp(type, "IEND", 4)) {
            break;
        }
        n = big(d + at, 4);
        if (size - at < 12 || n > size - at - 12) {
            return cmn_image_is_cut;
        }
        if (!memcmp(type, "IHDR", 4)) {
            head = n == 13 ? d + at + 8 : NULL;
        } else if (!memcmp(type, "PLTE", 4)) {
            image->palette = at;
        } else if (!memcmp(type, "tRNS", 4)) {
            image->channels = 1;
        } else if (!(type[0] & 32) && memcmp(type, "IDAT", 4) && memcmp(type, "CgBI", 4)) {
            return "unknown chunk"; /* the decoder's line for it is not thread-safe */
        }
    }
    if (!head) {
        return "damaged header";
    }
    if (head[9] > 6 || (head[8] & (head[8] - 1)) || !(depths[head[9]] & head[8])) {
        return "bad ctype";
    }
    image->channels += channels[head[9]];
    return check_sides(image, big(head, 4), big(head + 4, 4), head[8] == 16);
}

/* ---- BMP ---- */

static const char *check_bmp(const unsigned char *d, size_t size, struct cmn_whole_image *image)
{
    unsigned head = size < 18 ? 0 : little(d + 14, 4), bits, packed, width, height, start, entries;
    size_t row, begin;
    const char *fault;

    if (size < 18) {
        return cmn_image_is_cut;
    }
    if (head != 12 && head != 40 && head != 56 && head != 108 && head != 124) {
        return "damaged header";
    }
    if (size < 14 + head) {
        return cmn_image_is_cut;
    }
    width = head == 12 ? little(d + 18, 2) : little(d + 18, 4);
    height = head == 12 ? little(d + 20, 2) : little(d + 22, 4);
    height = height >> 31 ? 0u - height : height; /* from above downwards */
    bits = head == 12 ? little(d + 24, 2) : little(d + 28, 2);
    packed = head == 12 ? 0 : little(d + 30, 4);
    if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32) {
        return "bad bpp";
    }
    if (packed && (packed != 3 || (bits != 16 && bits != 32))) {
        return packed < 3 ? "BMP RLE" : "bad compression";
    }
    if (head == 12 && bits < 24) {
        return "a palette of OS/2, which is read wrongly; convert it to PNG";
    }
    image->channels = bits == 24 ? 3 : 4;
    fault = check_sides(image, width, height, 0);
    if (fault) {
        return fault;
    }
    begin = little(d + 10, 4);
    start = 14 + head + (packed && head <= 56 ? 12 : 0);
    if (begin < start) {
        return "bad offset";
    }
    entries = (unsigned)(begin - start) / 4;
    image->gap = bits > 8 ? begin - start : 0;
    image->pixels = begin;
    row = ((size_t)width * bits + 31) / 32 * 4;
    if (begin > size || (height - 1) * row + ((size_t)width * bits + 7) / 8 > size - begin) {
        return cmn_image_is_cut;
    }
    for (size_t y = 0; bits <= 8 && entries < 1u << bits && y < height; y++) {
        for (size_t x = 0; x < width; x++) {
            size_t bit = x * bits;
            unsigned byte = d[begin + y * row + bit / 8];
            if ((byte >> (8 - bits - bit % 8) & ((1u << bits) - 1)) >= entries) {
                return "bad palette index";
            }
        }
    }
    return NULL;
}

/* ---- PGM, PPM ---- */

/* Skips blanks and comments, and reads a number. */
static unsigned next_number(const unsigned char *d, size_t size, size_t *at)
{
    unsigned n = 0;

    while (*at < size && (isspace(d[*at]) || d[*at] == '#')) {
        if (d[*at] == '#') {
            while (*at < size && d[*at] != '\n' && d[*at] != '\r') {
                ++*at;
            }
        } else {
            ++*at;
        }
    }
    for (; *at < size && isdigit(d[*at]); ++*at) {
        n = n > MOST_PIXELS ? n : 10 * n + d[*at] - '0';
    }
    return n;
}

static const char *check_pnm(const unsigned char *d, size_t size, struct cmn_whole_image *image)
{
    size_t at = 2;
    unsigned width = next_number(d, size, &at), height = next_number(d, size, &at);
    unsigned most = next_number(d, size, &at);
    const char *fault;

    if (at == size) {
        return cmn_image_is_cut;
    }
    if (most != 255) {
        return "the greatest value is not 255; convert it to PNG";
    }
    image->channels = d[1] == '6' ? 3 : 1;
    fault = check_sides(image, width, height, 0);
    if (fault) {
        return fault;
    }
    return (size_t)width * height * (size_t)image->channels > size - at - 1 ? cmn_image_is_cut
                                                                            : NULL;
}

/* ---- formats ---- */

static const struct cmn_image_format formats[] = {
    {"JPEG", "\xff\xd8", 0, 2, check_jpeg},
    {"PNG", "\x89PNG\r\n\x1a\n", 0, 8, check_png},
    {"BMP", "BM", 0, 2, check_bmp},
    {"PGM", "P5", 0, 2, check_pnm},
    {"PPM", "P6", 0, 2, check_pnm},
    {"GIF", "GIF8", 0, 4, NULL},
    {"TIFF", "II*\0", 0, 4, NULL},
    {"TIFF", "MM\0*", 0, 4, NULL},
    {"WebP", "WEBP", 8, 4, NULL},
    {"HEIC or AVIF", "ftyp", 4, 4, NULL},
    {"JPEG 2000", "jP  ", 4, 4, NULL},
    {"JPEG XL", "\xff\x0a", 0, 2, NULL},
    {"PSD", "8BPS", 0, 4, NULL},
    {"HDR", "#?", 0, 2, NULL},
    {"PIC", "\x53\x80\xf6\x34", 0, 4, NULL},
    {"plain PBM", "P1", 0, 2, NULL},
    {"plain PGM", "P2", 0, 2, NULL},
    {"plain PPM", "P3", 0, 2, NULL},
    {"PBM", "P4", 0, 2, NULL},
};

/* TGA begins with numbers: whether it has a palette, how it is packed, ..., bits of a pixel. */
static int is_tga(const unsigned char *d, size_t size)
{
    int type = size < CMN_IMAGE_HEAD ? 0 : d[2] & ~8;

    return type >= 1 && type <= 3 && d[1] == (type == 1) &&
           (d[16] == 8 || d[16] == 15 || d[16] == 16 || d[16] == 24 || d[16] == 32);
}

const struct cmn_image_format *cmn_image_format(const unsigned char *data, size_t size)
{
    static const struct cmn_image_format tga = {.name = "TGA"};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct cmn_image_format *f = &formats[i];
        if (size >= f->at + f->n && !memcmp(data + f->at, f->bytes, f->n)) {
            return f;
        }
    }
    return is_tga(data, size) ? &tga : NULL;
}
