/* Tells by the bytes of an image file which format it has, and whether it is whole: the decoder
 * (data/pixels.h) fills what is missing with anything. It also refuses the files that would lead
 * the decoder out of its memory. All calls are local and thread-safe. */
#ifndef CMN_WHOLE_IMAGE_H
#define CMN_WHOLE_IMAGE_H

#include <stddef.h>

enum { CMN_IMAGE_HEAD = 18 }; /* bytes that tell the format */

struct cmn_whole_image {
    int width, height, channels;
    int orientation; /* how a viewer turns a JPEG, by its EXIF part: 2 to 8; 0 or 1: not at all */
    size_t palette;  /* where the chunk of a PNG's palette begins; 0: it has none */
    size_t gap; /* bytes between the head of a BMP without palette and its pixels, at `pixels` */
    size_t pixels;
};

struct cmn_image_format {
    const char *name, *bytes;
    size_t at, n; /* where the bytes are that tell it, and how many */
    const char *(*check)(const unsigned char *data, size_t size, struct cmn_whole_image *image);
};

/* Returns the format that a file with these first bytes has, or NULL. It is decoded if it has a
 * `check`. */
const struct cmn_image_format *cmn_image_format(const unsigned char *data, size_t size);

/* What a `check` returns for a file that is cut, and for one that lacks data between its marks. It
 * returns NULL for a whole file, whose properties *image then has, or another reason. */
extern const char cmn_image_is_cut[], cmn_image_is_short[];

#endif
