/* Label files of a detector's images: a line for each box, which holds its class and, as fractions
 * of the image's size, its centre, width and height. A byte order mark, blank lines and the ends of
 * lines of Windows are skipped. All calls are local and thread-safe. */
#ifndef CMN_LABELS_H
#define CMN_LABELS_H

#include <stddef.h>
#include <stdio.h>

struct cmn_label {
    int class;
    float x, y, width, height; /* finite */
    int line;                  /* in the file, from 1 on */
};

/* Messages about what is in a label file. Arguments: file, line, class, number of classes, last
 * class; and file, number of boxes (long), max= of the cfg. */
#define CMN_BAD_CLASS "%s:%d: class %d, and with classes=%d they are 0 to %d"
#define CMN_MANY_LABELLED "%s: %ld boxes; training takes %d of them (max= of the last layer)"

struct cmn_labels {
    const char *name;
    FILE *file;
    char *text;
    size_t room;
    int line;   /* number of the last line that was read, from 1 on */
    int failed; /* the file cannot be read further */
};

/* Opens the copy of the file that this host has (data/scatter.h). Returns 0, or an errno. `name`
 * must outlive it. Until it is closed the watchdog names it as the file that this thread reads. What
 * is no file, such as a pipe, opens, and fails when it is read. */
int cmn_labels_open(struct cmn_labels *l, const char *name);
void cmn_labels_close(struct cmn_labels *l);

/* Reads the next box. Returns 1, or 0 at the end of the file, or -1 with a reason that names file
 * and line: the line is no label, and the next call reads the one after it; unless l->failed. */
int cmn_labels_next(struct cmn_labels *l, struct cmn_label *label);

/* Reads a whole file, and sets *n to the number of boxes. Ends the job if it cannot be read, or if a
 * line is no label. The caller frees the array. */
struct cmn_label *cmn_labels_read(const char *name, int *n);

#endif
