/* cmn_pixels_load(): right pixels, or one line that says why not. */
#include "folder.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>

#include "data/pixels.h"

#define SEEDS "fuzz/seeds/image/"
#define FOUND "fuzz/regression/image/"
#define CUT "the file ends before the last pixel"
#define SHORT "the data end before the last pixel"
#define GIF_LINE "GIF files are not supported; convert it to JPEG or PNG"

static unsigned char bytes[1 << 16];
static int w, h, c;
static const char *reason;

/* A file of the fuzzer, whose first byte is not the image's. */
static int read_fuzzed(const char *from, const char *name)
{
    char path[128];
    FILE *file;
    int n;

    snprintf(path, sizeof path, "%s%s", from, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    n = (int)fread(bytes, 1, sizeof bytes, file) - 1;
    fclose(file);
    assert_in_range(n, 0, sizeof bytes - 2);
    memmove(bytes, bytes + 1, (size_t)n);
    return n;
}

/* The image that the first n bytes make. */
static unsigned char *decode(int n, int channels)
{
    unsigned char *pixels;
    char name[32];
    int fd = memfd_create("image", 0);

    assert_int_equal(write(fd, bytes, (size_t)n), n);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    reason = NULL;
    pixels = cmn_pixels_load(name, channels, &w, &h, &c, &reason);
    close(fd);
    return pixels;
}

static unsigned char *decode_seed(const char *name, int channels)
{
    unsigned char *pixels = decode(read_fuzzed(SEEDS, name), channels);

    if (!pixels) {
        fail_msg("%s: %s", name, reason);
    }
    return pixels;
}

/* ---- what is refused ---- */

static const struct {
    const char *name, *line;
} found[] = {
    {"bmp-65535", "BMP: " CUT},
    {"bmp-height", "BMP: too large"},
    {"bmp-masks", "BMP: bad masks"},
    {"bmp-offset-negative", "BMP: "},
    {"bmp-palette-index", "BMP: bad palette index"},
    {"bmp-palette-missing", "BMP: bad offset"},
    {"bmp-wide", "BMP: too large"},
    {"bmp-width", "BMP: "},
    {"gif-size", GIF_LINE},
    {"gif-width-0", GIF_LINE},
    {"hdr-run-0", "HDR files are not supported; convert it to JPEG or PNG"},
    {"jpg-65535", "JPEG: " SHORT},
    {"jpg-codes", "JPEG: "},
    {"jpg-colours-missing", "JPEG: " SHORT},
    {"jpg-gray-restart-cut", "JPEG: " CUT},
    {"jpg-huffman", "JPEG: bad Huffman table"},
    {"jpg-many-scans", "JPEG: " SHORT},
    {"jpg-progressive-cut", "JPEG: " CUT},
    {"jpg-restart-missing", "JPEG: " SHORT},
    {"jpg-sampling", "JPEG: bad H or V"},
    {"jpg-scan-order", "JPEG: bad scan order"},
    {"jpg-short", "JPEG: " CUT},
    {"jpg-short-2", "JPEG: " CUT},
    {"jpg-without-tables", "JPEG: a scan without its component or table"},
    {"no-pixels", "PGM: the greatest value is not 255; convert it to PNG"},
    {"pgm-16", "PGM: the greatest value is not 255; convert it to PNG"},
    {"pgm-cut", "PGM: " CUT},
    {"pic-packets", "PIC files are not supported; convert it to JPEG or PNG"},
    {"pic-without-size", "PIC files are not supported; convert it to JPEG or PNG"},
    {"png-16-wrap", "PNG: too large"},
    {"png-65535", "PNG: too large"},
    {"png-bomb", "PNG: outofmem"},
    {"png-cut-2", "PNG: " CUT},
    {"png-endless", "PNG: bad huffman code"},
    {"png-interlaced-memory", "PNG: "}, /* no memory, or not enough pixels */
    {"png-rgb-4", "PNG: bad ctype"},
    {"pnm-size", "the greatest value is not 255; convert it to PNG"},
    {"pnm-width", "the greatest value is not 255; convert it to PNG"},
    {"ppm-cut", "PPM: " CUT},
    {"psd-width", "PSD files are not supported; convert it to JPEG or PNG"},
    {"rgb-bmp-cut", "BMP: " CUT},
    {"rgb-jpg-cut", "JPEG: " CUT},
    {"rgb-png-cut", "PNG: " CUT},
    {"tga-palette-0", "TGA files are not supported; convert it to JPEG or PNG"},
};

/* What is damaged inside of a whole file: the decoder goes on. */
static const char *const damaged[] = {"jpg-ends-early", "png-distance-30",
                                      "png-distance-30-interlaced", "png-palette-index"};

TEST(what_was_found_is_refused_with_its_reason)
{
    assert_int_equal(files_in(FOUND), COUNT(found) + COUNT(damaged));
    for (size_t i = 0; i < COUNT(found); i++) {
        int n = read_fuzzed(FOUND, found[i].name);
        if (decode(n, 3)) {
            fail_msg("%s: taken", found[i].name);
        }
        check_contains(reason, found[i].line);
    }
}

TEST(what_is_no_image_is_named)
{
    static const struct {
        const char *starts;
        int n;
        const char *line;
    } other[] = {
        {"", 0, "an empty file"},
        {"P", 1, "not a JPEG, PNG, BMP, PGM or PPM file"},
        {"P5 0 9 255\n0123456789", 21, "PGM: no pixels"},
        {"P6 9 70000 255\n01234567", 23, "PPM: too large"},
        {"P5 65535 30000 255\n0", 20, "PGM: " CUT},
        {"BM0123456789012345678901", 24, "BMP: damaged header"},
        {"a text that is no image at all\n", 31, "not a JPEG, PNG, BMP, PGM or PPM file"},
        {"GIF89a.............", 18, GIF_LINE},
        {"II*\0................", 20, "TIFF files are not supported; convert"},
        {"RIFF....WEBPVP8 ....", 20, "WebP files are not supported; convert"},
        {"....ftypavif........", 20, "HEIC or AVIF files are not supported; convert"},
        {"P3 1 1 255 1 2 3", 16, "plain PPM files are not supported; convert"},
    };
    static const char *const files[][2] = {{"none.png", "No such file or directory"},
                                           {"fuzz", "Is a directory"},
                                           {"/dev/zero", "a device, not a file"}};

    for (size_t i = 0; i < COUNT(other); i++) {
        memcpy(bytes, other[i].starts, (size_t)other[i].n);
        assert_null(decode(other[i].n, 3));
        check_contains(reason, other[i].line);
    }
    for (size_t i = 0; i < COUNT(files); i++) {
        assert_null(cmn_pixels_load(files[i][0], 3, &w, &h, &c, &reason));
        assert_string_equal(reason, files[i][1]);
    }
}

TEST(what_has_no_room_is_named)
{
    assert_null(cmn_pixels_too_large(1920, 1080, 3));
    check_contains(cmn_pixels_too_large(2000000000, 2000000000, 3),
                   "2000000000 x 2000000000 pixels take 72000000000.0 GB of memory, and ");
}

TEST(damaged_file_has_the_same_pixels_each_time)
{
    for (size_t i = 0; i <= COUNT(damaged); i++) {
        int n = i ? read_fuzzed(FOUND, damaged[i - 1]) : read_fuzzed(SEEDS, "jpg-422");
        unsigned char *first, *second;
        for (int k = 0; i == 0 && k + 1 < n; k++) {
            if (bytes[k] == 0xff && bytes[k + 1] == 0xdb) {
                bytes[k + 1] = 0xfe; /* the table of quantisation becomes a comment */
            }
        }
        mallopt(M_PERTURB, 0xaa); /* malloc()'s memory is not what it was before */
        first = decode(n, 3);
        mallopt(M_PERTURB, 0x55);
        second = decode(n, 3);
        mallopt(M_PERTURB, 0);
        if (!first) {
            check_contains(reason, "PNG: bad huffman code"); /* stb_image 2.30 sees this one */
            assert_memory_equal(damaged[i - 1], "png-distance-30", 15);
        } else {
            assert_memory_equal(first, second, 3 * (size_t)(w * h));
        }
        free(first);
        free(second);
    }
}

/* What is on the stack when the decoder begins. */
static __attribute__((noinline)) void spoil_stack(void)
{
    volatile char room[32768];

    for (size_t i = 0; i < sizeof room; i++) {
        room[i] = 0x55;
    }
}

TEST(colour_that_a_palette_lacks_is_black)
{
    static const unsigned char right[] = {1, 2, 3, 4, 5, 6, 0, 0, 0};
    int n = read_fuzzed(FOUND, "png-palette-index");
    unsigned char *p;

    spoil_stack();
    p = decode(n, 3);
    assert_memory_equal(p, right, sizeof right);
    free(p);
}

/* For decoders that are not ours. */
TEST(cut_file_is_told_from_others)
{
    static const char *const seeds[] = {"jpg-420-restart", "rgb-png", "rgb-bmp", "pgm", "gif"};
    char *name = in_folder("image");

    for (size_t i = 0; i < COUNT(seeds); i++) {
        int n = read_fuzzed(SEEDS, seeds[i]);
        for (int cut = 0; cut < 2; cut++) {
            FILE *file = fopen(name, "wb");
            const char *why;
            fwrite(bytes, 1, (size_t)(cut ? n - 13 : n), file);
            fclose(file);
            why = cmn_pixels_cut(name);
            if (!cut || !strcmp(seeds[i], "gif")) {
                assert_null(why);
            } else {
                check_contains(why, ": " CUT);
            }
        }
    }
    assert_null(cmn_pixels_cut(in_folder("none")));
}

/* Of each length that a file can be cut to: all pixels, or the line. What lies behind the last
 * pixel may be missing: a PNG's last checksum, a BMP's padding. */
TEST(cut_file_is_refused)
{
    static const char *const seeds[] = {"bmp-1",
                                        "bmp-16",
                                        "bmp-4",
                                        "bmp-8",
                                        "jpg-420-restart",
                                        "jpg-cmyk",
                                        "jpg-scans",
                                        "jpg-progressive-restart",
                                        "pgm",
                                        "png-gray1",
                                        "png-pal8",
                                        "png-rgb16",
                                        "png-rgba-i",
                                        "ppm",
                                        "rgb-bmp",
                                        "rgb-png"};

    for (size_t i = 0; i < COUNT(seeds); i++) {
        unsigned char *whole = decode_seed(seeds[i], 3), *cut;
        int width = w, height = h, n = read_fuzzed(SEEDS, seeds[i]), refused = 0;
        for (int k = 1; k < n; k++) {
            cut = decode(k, 3);
            if (!cut) {
                refused++;
                check_contains(reason, k < 18 ? "" : CUT); /* a head alone may be damaged as well */
            } else if (w != width || h != height || memcmp(cut, whole, 3 * (size_t)(w * h))) {
                fail_msg("%s: %d of its %d bytes make another image", seeds[i], k, n);
            }
            free(cut);
        }
        assert_in_range(refused, n - 8, n - 1);
        free(whole);
    }
}

/* ---- what is taken ---- */

/* How fuzz/seeds/image/jpg-* were made: 24 x 16, colours that change evenly. */
TEST(jpegs_of_all_kinds_have_their_pixels)
{
    static const char *const seeds[] = {
        "jpg-422",  "jpg-420-restart",         "jpg-scans", "jpg-progressive",
        "jpg-cmyk", "jpg-progressive-restart", "jpg-ycck",  "jpg-exif"};
    unsigned char *p;

    for (size_t i = 0; i < COUNT(seeds); i++) {
        p = decode_seed(seeds[i], 3);
        assert_int_equal(w, 24); /* jpg-exif, too: pixels are taken as they are stored */
        assert_int_equal(h, 16);
        for (int k = 0; k < w * h; k++) {
            const int right[] = {40 + 8 * (k % w), 40 + 12 * (k / w), 200 - 4 * (k % w)};
            for (int j = 0; j < 3; j++) {
                if (abs(p[3 * k + j] - right[j]) > 12) {
                    fail_msg("%s: %d instead of %d", seeds[i], p[3 * k + j], right[j]);
                }
            }
        }
        free(p);
    }
    p = decode_seed("jpg-gray-restart", 1);
    for (int k = 0; k < w * h; k++) {
        assert_in_range(p[k], 40 + 4 * (k % w) + 6 * (k / w) - 4,
                        40 + 4 * (k % w) + 6 * (k / w) + 4);
    }
    free(p);
}

static void put(int *n, unsigned value, int size)
{
    for (int i = 0; i < size; i++) {
        bytes[(*n)++] = (unsigned char)((unsigned long)value >> 8 * i);
    }
}

/* Head of a BMP file of 8 x 2 pixels, from below upwards; pixels at `offset`. */
static int bmp(unsigned header, unsigned bits, unsigned compression, unsigned offset)
{
    int n = 0;

    memset(bytes, 0, 256);
    put(&n, 'B' | 'M' << 8, 2);
    put(&n, 0, 8);
    put(&n, offset, 4);
    put(&n, header, 4);
    put(&n, 8, header == 12 ? 2 : 4);
    put(&n, 2, header == 12 ? 2 : 4);
    put(&n, 1, 2);
    put(&n, bits, 2);
    if (header != 12) {
        put(&n, compression, 4);
        n += 20;
    }
    return n;
}

TEST(bmps_that_were_read_wrongly)
{
    unsigned char *p;
    int n;

    /* One bit a pixel and a width of whole bytes; white and black. */
    n = bmp(40, 1, 0, 62);
    put(&n, 0, 4), put(&n, 0xffffff, 4);
    put(&n, 0xaa, 4), put(&n, 0x0f, 4); /* the lower row, and the upper one */
    for (int channels = 3; channels <= 4; channels++) {
        p = decode(n, channels);
        assert_non_null(p);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(p[channels * i], (i < 8 ? 0x0f : 0xaa) >> (7 - i % 8) & 1 ? 255 : 0);
            assert_int_equal(p[channels * i + channels - 1], channels == 4 ? 255 : p[channels * i]);
        }
        free(p);
    }
    /* OS/2: the palette behind a header of 12 bytes, which the decoder reads wrongly. */
    n = bmp(12, 1, 0, 32);
    n += 14;
    assert_null(decode(n, 3));
    check_contains(reason, "BMP: a palette of OS/2");
    /* Bytes between the header and the pixels, as much as a head can be away from them. */
    for (unsigned gap = 0; gap <= 300; gap += 150) {
        n = bmp(40, 24, 0, 54 + gap);
        memset(bytes + n, 0x99, gap);
        n += (int)gap;
        for (int i = 0; i < 48; i++) {
            put(&n, (unsigned)i, 1);
        }
        p = decode(n, 3);
        assert_non_null(p);
        assert_true(p[0] == 26 && p[3 * 8] == 2 && p[47] == 21); /* p[0]: red of the upper row */
        free(p);
    }
    /* Masks between the header and the pixels. */
    n = bmp(40, 16, 3, 66);
    put(&n, 0xf800, 4), put(&n, 0x07e0, 4), put(&n, 0x001f, 4);
    for (int i = 0; i < 16; i++) {
        put(&n, i < 8 ? 0xf800 : 0x001f, 2);
    }
    p = decode(n, 3);
    assert_non_null(p);
    assert_true(p[0] == 0 && p[2] == 255 && p[3 * 8] == 255);
    free(p);
}

TEST(pngs_of_all_kinds)
{
    static const char *const same[] = {"png-fixed", "png-stored", "png-gray4", "png-gray16",
                                       "png-graya", "png-pal8",   "png-rgb16", "png-rgba-i"};

    for (size_t i = 0; i < COUNT(same); i++) {
        unsigned char *p = decode_seed(same[i], 4), *gray;
        unsigned char *colours = decode_seed(same[i], 3);
        gray = decode_seed(same[i], 0);
        for (int k = 0; k < w * h; k++) {
            assert_memory_equal(p + 4 * k, colours + 3 * k, 3); /* alpha is left out, not blended */
        }
        free(p);
        free(colours);
        free(gray);
    }
}

/* ---- signals ---- */

static void nothing(int number)
{
    (void)number;
}

/* Writes the first n bytes, and has signals come while the reader waits to open the FIFO, and before and
 * amid its bytes. */
static void write_slowly(const char *fifo, pid_t reader, int n)
{
    int fd;

    for (int i = 0; i < 10; i++) {
        usleep(1000);
        kill(reader, SIGUSR1);
    }
    fd = open(fifo, O_WRONLY); /* waits for the reader, who would find nothing later */
    for (int i = 0; i < n; i += 40) {
        usleep(1000);
        kill(reader, SIGUSR1);
        usleep(1000);
        if (write(fd, bytes + i, (size_t)(n - i < 40 ? n - i : 40)) < 0) {
            break;
        }
    }
}

TEST(signals_do_not_cut_an_image)
{
    struct sigaction action = {.sa_handler = nothing}, before;
    unsigned char *whole = decode_seed("rgb-png", 3), *p;
    int n = read_fuzzed(SEEDS, "rgb-png");
    char *fifo = in_folder("fifo");
    pid_t reader = getpid(), writer;

    assert_int_equal(mkfifo(fifo, 0600), 0);
    sigaction(SIGUSR1, &action, &before);
    fflush(NULL);
    writer = fork();
    if (writer == 0) {
        write_slowly(fifo, reader, n);
        _exit(0);
    }
    p = cmn_pixels_load(fifo, 3, &w, &h, &c, &reason);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    sigaction(SIGUSR1, &before, NULL);
    if (!p) {
        fail_msg("%s", reason);
    }
    assert_memory_equal(p, whole, 3 * (size_t)(w * h));
    free(p);
    free(whole);
}

/* ---- what a viewer would turn ---- */

/* Whether it is, as a JPEG's seed with a part behind its first mark: the first `kept` bytes of `exif`;
 * and then the part `other`. */
static int turned(const char *exif, size_t kept, const char *other, size_t others)
{
    const char head[] = {'\xff', '\xe1', 0, (char)(kept + 2)};
    int size = read_fuzzed(SEEDS, "rgb-jpg");
    unsigned char *pixels;

    memmove(bytes + 2 + sizeof head + kept + others, bytes + 2, (size_t)size - 2);
    memcpy(bytes + 2, head, sizeof head);
    memcpy(bytes + 6, exif, kept);
    memcpy(bytes + 6 + kept, other, others);
    pixels = decode(size + (int)(sizeof head + kept + others), 0);
    assert_non_null(pixels);
    free(pixels);
    return cmn_pixels_turned();
}

TEST(orientations)
{
    static const char big[] = "Exif\0\0MM\0*\0\0\0\x8\0\x2\x1\xf\0\x2\0\0\0\x1zzzz"
                              "\x1\x12\0\x3\0\0\0\x1\0\x6\0\0\0\0\0\0";
    static const char little[] = "Exif\0\0II*\0\x8\0\0\0\x1\0"
                                 "\x12\x1\x3\0\x1\0\0\0\x3\0\0\0\0\0\0\0";
    static const char upright[] = "Exif\0\0II*\0\x8\0\0\0\x1\0"
                                  "\x12\x1\x3\0\x1\0\0\0\x1\0\0\0\0\0\0\0";
    static const char far_away[] = "Exif\0\0MM\0*\xff\xff\xff\xff\0\x1";
    static const char http[] = "\xff\xe1\0\x9http://";

    assert_true(turned(big, sizeof big - 1, "", 0));
    assert_true(turned(little, sizeof little - 1, "", 0));
    assert_false(turned(upright, sizeof upright - 1, "", 0));
    assert_false(turned(far_away, sizeof far_away - 1, "", 0));
    for (size_t kept = 0; kept < 40; kept++) {
        assert_false(turned(big, kept, "", 0));
    }
    /* Programs write another part under EXIF's mark behind it. */
    assert_true(turned(big, sizeof big - 1, http, sizeof http - 1));
    free(decode_seed("rgb-jpg", 0));
    assert_false(cmn_pixels_turned());
}

TESTS(make_folder, remove_folder)
