/* Digits on larger canvases (examples/detection): where the boxes lie, and that a seed means the
 * same bytes everywhere. */
#include "check.h"

#include "../examples/detection/canvas.c"

enum { GLYPHS = 10, MANY = 1000, INWARD = 2 };

static uint8_t glyphs[GLYPHS][GLYPH * GLYPH], labels[GLYPHS];

/* Solid blocks of other shapes and places: the longer side is that of MNIST's digits. */
static void make_glyphs(void)
{
    for (int g = 0; g < GLYPHS; g++) {
        int width = g % 2 ? GLYPH_INK : 3 + g, height = g % 2 ? 3 + g : GLYPH_INK;
        int left = (GLYPH - width) / 2, top = (GLYPH - height) / 2;
        labels[g] = (uint8_t)(GLYPHS - 1 - g);
        for (int y = top; y < top + height; y++) {
            memset(&glyphs[g][y * GLYPH + left], 255, (size_t)width);
        }
    }
}

static void draw(struct canvas *canvas, uint64_t seed, uint32_t index)
{
    draw_canvas(canvas, glyphs[0], labels, GLYPHS, seed, index);
}

/* More than any background, and than any ink that is too faint for a box: GROUND and VISIBLE say
 * so. */
static int bright(const struct canvas *canvas, int x, int y)
{
    const uint8_t *p = &canvas->pixels[(y * CANVAS + x) * 3];
    int limit = (GROUND * (255 - (VISIBLE - 1)) + 255 * (VISIBLE - 1)) / 255;
    return p[0] > limit || p[1] > limit || p[2] > limit;
}

static int any_bright(const struct canvas *canvas, int left, int top, int right, int bottom)
{
    for (int y = top; y < bottom; y++) {
        for (int x = left; x < right; x++) {
            if (bright(canvas, x, y)) {
                return 1;
            }
        }
    }
    return 0;
}

static int apart(const struct box *a, const struct box *b)
{
    return a->right < b->left || b->right < a->left || a->bottom < b->top || b->bottom < a->top;
}

TEST(boxes_lie_apart_within_the_canvas)
{
    static struct canvas canvas;
    int seen[GLYPHS] = {0}, counts[MOST_DIGITS + 1] = {0};

    for (uint32_t i = 0; i < MANY; i++) {
        draw(&canvas, 5, i);
        assert_in_range(canvas.digits, 1, MOST_DIGITS);
        counts[canvas.digits]++;
        for (int k = 0; k < canvas.digits; k++) {
            const struct box *b = &canvas.boxes[k];
            assert_in_range(b->label, 0, GLYPHS - 1);
            seen[b->label]++;
            assert_true(b->left >= 0 && b->left < b->right && b->right <= CANVAS);
            assert_true(b->top >= 0 && b->top < b->bottom && b->bottom <= CANVAS);
            int glyph = GLYPHS - 1 - b->label, wide = b->right - b->left > b->bottom - b->top;
            assert_int_equal(wide, glyph % 2);
            for (int other = 0; other < k; other++) {
                assert_true(apart(b, &canvas.boxes[other]));
            }
        }
    }
    for (int g = 0; g < GLYPHS; g++) {
        assert_true(seen[g] > MANY / GLYPHS);
    }
    for (int n = 1; n <= MOST_DIGITS; n++) {
        assert_true(counts[n] > MANY / 20);
    }
}

TEST(boxes_are_tight_on_the_canvas)
{
    static struct canvas canvas;

    for (uint32_t i = 0; i < MANY; i++) {
        draw(&canvas, 6, i);
        for (int k = 0; k < canvas.digits; k++) {
            const struct box *b = &canvas.boxes[k];
            assert_true(any_bright(&canvas, b->left, b->top, b->left + INWARD + 1, b->bottom));
            assert_true(any_bright(&canvas, b->right - INWARD - 1, b->top, b->right, b->bottom));
            assert_true(any_bright(&canvas, b->left, b->top, b->right, b->top + INWARD + 1));
            assert_true(any_bright(&canvas, b->left, b->bottom - INWARD - 1, b->right, b->bottom));
            for (int y = b->top; y < b->bottom; y++) {
                memset(&canvas.pixels[(y * CANVAS + b->left) * 3], 0,
                       (size_t)(b->right - b->left) * 3);
            }
        }
        assert_false(any_bright(&canvas, 0, 0, CANVAS, CANVAS));
    }
}

/* FNV-1a. */
static uint64_t hash(uint64_t sum, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ p[i]) * 0x100000001b3U;
    }
    return sum;
}

TEST(a_seed_means_the_same_bytes_everywhere)
{
    static struct canvas canvas, again, other;
    uint64_t sum = 0xcbf29ce484222325U;

    for (uint32_t i = 0; i < 100; i++) {
        draw(&canvas, 7, i);
        draw(&again, 7, i);
        assert_memory_equal(&canvas, &again, sizeof canvas);
        draw(&other, 7, i + 1);
        assert_memory_not_equal(canvas.pixels, other.pixels, sizeof canvas.pixels);
        draw(&other, 8, i);
        assert_memory_not_equal(canvas.pixels, other.pixels, sizeof canvas.pixels);
        sum = hash(sum, canvas.pixels, sizeof canvas.pixels);
        for (int k = 0; k < canvas.digits; k++) {
            const struct box *b = &canvas.boxes[k];
            const uint8_t numbers[] = {(uint8_t)b->label, (uint8_t)b->left, (uint8_t)b->top,
                                       (uint8_t)b->right, (uint8_t)b->bottom};
            sum = hash(sum, numbers, sizeof numbers);
        }
    }
    assert_int_equal(sum, 0xf7408e352ec82592U);
}

TEST(blank_glyphs_get_no_box)
{
    static struct canvas canvas;
    static const uint8_t blank[GLYPH * GLYPH], label[1];

    draw_canvas(&canvas, blank, label, 1, 1, 1);
    assert_int_equal(canvas.digits, 0);
}

TESTS(make_glyphs, NULL)
