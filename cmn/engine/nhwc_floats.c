/* The functions of nhwc_images.h for images of floats. */
#define OF_FLOATS
#include "engine/nhwc_images.c"
