#include "canvas.h"

#include <string.h>

enum { GLYPH = 28, GLYPH_INK = 20, FRACTION = 256, CELL = 16, TRIES = 60, GAP = 2 };
enum { MOST_PIXELS = GLYPH * LARGEST / GLYPH_INK + 1 };

/* One glyph at its size on the canvas: how much ink lies in each pixel, and the box around what
 * is visible. */
struct stamp {
    int size;
    uint8_t ink[MOST_PIXELS * MOST_PIXELS];
    struct box box;
};

/* splitmix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* low <= result <= high */
static int between(uint64_t *state, int low, int high)
{
    return low + (int)((next(state) >> 32) * (uint64_t)(high - low + 1) >> 32);
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* Between a and b, at fraction/FRACTION of the way. */
static int mix(int a, int b, int fraction)
{
    return (a * (FRACTION - fraction) + b * fraction) / FRACTION;
}

/* A colour, clouds on it (random values on a lattice, and between them straight lines), and
 * noise in every pixel. */
static void paint_ground(struct canvas *canvas, uint64_t *state)
{
    enum { KNOTS = CANVAS / CELL + 1 };
    int cloud[KNOTS][KNOTS], colour[3];
    for (int i = 0; i < 3; ++i)
        colour[i] = between(state, 10, GROUND - 30);
    int depth = between(state, 5, 35), noise = between(state, 2, 14);
    for (int i = 0; i < KNOTS * KNOTS; ++i)
        cloud[i / KNOTS][i % KNOTS] = between(state, -depth, depth);

    for (int y = 0; y < CANVAS; ++y) {
        for (int x = 0; x < CANVAS; ++x) {
            int row = y / CELL, column = x / CELL, right = x % CELL * FRACTION / CELL;
            int above = mix(cloud[row][column], cloud[row][column + 1], right);
            int below = mix(cloud[row + 1][column], cloud[row + 1][column + 1], right);
            int shade =
                mix(above, below, y % CELL * FRACTION / CELL) + between(state, -noise, noise);
            for (int i = 0; i < 3; ++i)
                canvas->pixels[(y * CANVAS + x) * 3 + i] =
                    (uint8_t)clamp(colour[i] + shade, 0, GROUND);
        }
    }
}

/* Zero outside the glyph. */
static int ink_at(const uint8_t *glyph, int x, int y)
{
    return x < 0 || y < 0 || x >= GLYPH || y >= GLYPH ? 0 : glyph[y * GLYPH + x];
}

/* The glyph, scaled so that the GLYPH_INK pixels which MNIST's digits take become `longer`
 * pixels. Returns 0 when none of it is visible. */
static int make_stamp(struct stamp *stamp, const uint8_t *glyph, int longer)
{
    struct box box = {.left = MOST_PIXELS, .top = MOST_PIXELS};
    stamp->size = GLYPH * longer / GLYPH_INK;
    for (int y = 0; y < stamp->size; ++y) {
        for (int x = 0; x < stamp->size; ++x) {
            /* From the middle of a pixel here to a place between the middles of four pixels
             * there. One pixel is added so that division rounds down everywhere. */
            int u = (2 * x + 1) * GLYPH * FRACTION / (2 * stamp->size) + FRACTION / 2;
            int v = (2 * y + 1) * GLYPH * FRACTION / (2 * stamp->size) + FRACTION / 2;
            int column = u / FRACTION - 1, row = v / FRACTION - 1;
            int above =
                mix(ink_at(glyph, column, row), ink_at(glyph, column + 1, row), u % FRACTION);
            int below = mix(ink_at(glyph, column, row + 1), ink_at(glyph, column + 1, row + 1),
                            u % FRACTION);
            int ink = mix(above, below, v % FRACTION);
            stamp->ink[y * stamp->size + x] = (uint8_t)ink;
            if (ink < VISIBLE)
                continue;
            box.left = x < box.left ? x : box.left;
            box.top = y < box.top ? y : box.top;
            box.right = x + 1 > box.right ? x + 1 : box.right;
            box.bottom = y + 1 > box.bottom ? y + 1 : box.bottom;
        }
    }
    stamp->box = box;
    return box.right > 0;
}

/* Finds a place where the box lies in the canvas and apart from the others. Returns 0 when there
 * seems to be none. */
static int place(const struct canvas *canvas, struct box *box, uint64_t *state)
{
    int width = box->right - box->left, height = box->bottom - box->top;
    for (int try = 0; try < TRIES; ++try) {
        int left = between(state, 1, CANVAS - 1 - width),
            top = between(state, 1, CANVAS - 1 - height), free = 1;
        for (int i = 0; i < canvas->digits && free; ++i) {
            const struct box *other = &canvas->boxes[i];
            free = left >= other->right + GAP || other->left >= left + width + GAP ||
                   top >= other->bottom + GAP || other->top >= top + height + GAP;
        }
        if (free) {
            *box = (struct box){box->label, left, top, left + width, top + height};
            return 1;
        }
    }
    return 0;
}

static void paint(struct canvas *canvas, const struct stamp *stamp, const struct box *at,
                  const int colour[3])
{
    for (int y = 0; y < stamp->size; ++y) {
        for (int x = 0; x < stamp->size; ++x) {
            int across = at->left - stamp->box.left + x, down = at->top - stamp->box.top + y;
            if (across < 0 || down < 0 || across >= CANVAS || down >= CANVAS)
                continue;
            uint8_t *pixel = &canvas->pixels[(down * CANVAS + across) * 3];
            int ink = stamp->ink[y * stamp->size + x];
            for (int i = 0; i < 3; ++i)
                pixel[i] = (uint8_t)((pixel[i] * (255 - ink) + colour[i] * ink) / 255);
        }
    }
}

void draw_canvas(struct canvas *canvas, const uint8_t *glyphs, const uint8_t *labels,
                 uint32_t count, uint64_t seed, uint32_t index)
{
    /* Two neighbouring states give numbers that overlap after one step: the index is stirred
     * first. */
    uint64_t state = index;
    state = next(&state) ^ seed;
    state = next(&state);
    memset(canvas, 0, sizeof(*canvas));
    paint_ground(canvas, &state);
    for (int wanted = between(&state, 1, MOST_DIGITS); wanted > 0; --wanted) {
        struct stamp stamp;
        uint32_t i = (uint32_t)((next(&state) >> 32) * count >> 32);
        int longer = between(&state, SMALLEST, LARGEST), colour[3];
        for (int k = 0; k < 3; ++k)
            colour[k] = between(&state, INK, 255);
        if (!make_stamp(&stamp, glyphs + (size_t)i * GLYPH * GLYPH, longer))
            continue;
        struct box box = stamp.box;
        box.label = labels[i];
        if (!place(canvas, &box, &state))
            continue;
        paint(canvas, &stamp, &box, colour);
        canvas->boxes[canvas->digits++] = box;
    }
}
