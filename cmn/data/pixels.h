/* The pixels of image files: JPEG, PNG, BMP, PGM and PPM, decoded by Debian's stb_image once they
 * are known to be whole (data/whole_image.h). All calls are local, blocking and thread-safe. */
#ifndef CMN_PIXELS_H
#define CMN_PIXELS_H

/* Decodes a file to *c channels of 8 bits: `channels`, or with 0 as many as it has. The caller frees
 * the pixels. Returns NULL if it fails; then *reason says why until the thread's next call. */
unsigned char *cmn_pixels_load(const char *file, int channels, int *w, int *h, int *c,
                               const char **reason);

/* For other decoders: returns NULL, or the reason if the file is a JPEG, PNG, BMP, PGM or PPM that
 * is cut, which stays until the thread's next call. */
const char *cmn_pixels_cut(const char *file);

/* Returns NULL, or why there is no memory to decode an image of this size, a text that stays until
 * the thread's next call. */
const char *cmn_pixels_too_large(int w, int h, int channels);

/* Returns whether viewers turn or mirror the image that this thread has loaded last, because its
 * camera asks for it (EXIF): its pixels here, and for Darknet, are not turned. */
int cmn_pixels_turned(void);
#define CMN_TURNED                                                                               \
    "%s: viewers turn this image by its EXIF part, and Darknet does not: boxes drawn in such a " \
    "viewer lie elsewhere; turn its pixels (exiftran -ai, jhead -autorot)"

#endif
