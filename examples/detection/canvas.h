/* Digits on a larger, noisy canvas, and where they are. No file is touched here, and no floating
 * point is used: the same seed gives the same bytes on every machine. */
#ifndef CANVAS_H
#define CANVAS_H

#include <stdint.h>

enum {
    CANVAS = 96,     /* pixels, both ways */
    MOST_DIGITS = 4, /* on one canvas */
    SMALLEST = 18,   /* longer side of a digit, pixels */
    LARGEST = 44,
    GROUND = 100, /* no channel of the background is brighter */
    INK = 160,    /* no channel of a digit's full strokes is darker */
    VISIBLE = 96, /* of 255: a pixel with that much ink or more lies in the digit's box */
};

/* Of one digit, in pixels: left <= x < right, top <= y < bottom. */
struct box {
    int label, left, top, right, bottom;
};

struct canvas {
    uint8_t pixels[CANVAS * CANVAS * 3];
    int digits; /* 1 to MOST_DIGITS */
    struct box boxes[MOST_DIGITS];
};

/* Digits are drawn from `count` glyphs of 28 x 28 bytes at `glyphs`, whose labels are at
 * `labels`. Canvases with other seeds or indices have nothing to do with each other. */
void draw_canvas(struct canvas *canvas, const uint8_t *glyphs, const uint8_t *labels,
                 uint32_t count, uint64_t seed, uint32_t index);

#endif
