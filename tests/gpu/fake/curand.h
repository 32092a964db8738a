/* A stand-in: darknet.h asks for it, and nothing here uses it. */
