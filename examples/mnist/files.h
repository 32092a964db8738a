/* What the programs that prepare data share: messages, paths, idx files, PNG files. Each ends
 * the program with one line on stderr, and status 1, when something is wrong. */
#ifndef FILES_H
#define FILES_H

#include <stdint.h>
#include <stdio.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, PATH_SIZE = 4096 };

/* An idx file: two zero bytes, the element type (8: unsigned byte), the number of dimensions,
 * each dimension as a big-endian 32-bit number, the elements. */
struct idx {
    uint8_t *bytes; /* the whole file; the caller frees it */
    const uint8_t *elements;
    uint32_t count;
};

/* What messages begin with. */
extern const char *program;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void join(char path[PATH_SIZE], const char *format, ...) __attribute__((format(printf, 2, 3)));
void make_folder(const char *path);
FILE *create(const char *path);
/* Closes, and fails if anything could not be written: a full disk may show only when the last
 * bytes are flushed. */
void finish(FILE *file, const char *path);

/* The images and the labels of the set `source` (train, t10k) of the folder: as many of one as
 * of the other, images of SIDE x SIDE, labels below CLASSES. */
void read_set(const char *folder, const char *source, struct idx *images, struct idx *labels);

/* pixels: height rows of width times channels (1 or 3) bytes. */
void write_png(const char *path, const uint8_t *pixels, int width, int height, int channels);

#endif
