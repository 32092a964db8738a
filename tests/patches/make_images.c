/*
 * Usage: make_images FOLDER COUNT SIZE CHANNELS
 * Writes COUNT small PNG files named <number>_class<0|1>.png, always the same.
 */
#include <stdio.h>
#include <stdlib.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#include "stb_image_write.h"

/* Class 1 is bright in its lower half, so that there is something to learn. */
static unsigned char pixel(unsigned *state, int y, int size, int class)
{
    *state = *state * 1103515245u + 12345u;
    unsigned noise = (*state >> 16) % 128;
    return (unsigned char)(noise + (class && y >= size / 2 ? 127 : 0));
}

static int write_image(const char *folder, int number, int size, int channels)
{
    unsigned state = (unsigned)number + 1;
    unsigned char *data = malloc((size_t)size * size * channels);
    char name[4096];
    int length = snprintf(name, sizeof(name), "%s/%03d_class%d.png", folder, number, number % 2);

    if (!data || length < 0 || (size_t)length >= sizeof(name)) {
        free(data);
        return -1;
    }
    for (int i = 0; i < size * size * channels; ++i)
        data[i] = pixel(&state, i / (size * channels), size, number % 2);
    int written = stbi_write_png(name, size, size, channels, data, size * channels);
    free(data);
    return written ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s FOLDER COUNT SIZE CHANNELS\n", argv[0]);
        return 1;
    }
    int count = atoi(argv[2]), size = atoi(argv[3]), channels = atoi(argv[4]);
    for (int i = 0; i < count; ++i) {
        if (write_image(argv[1], i, size, channels)) {
            fprintf(stderr, "%s: cannot write image %d into %s\n", argv[0], i, argv[1]);
            return 1;
        }
    }
    return 0;
}
