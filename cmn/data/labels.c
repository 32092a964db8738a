#include "data/labels.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/cfg_file.h"
#include "data/scatter.h"

enum { FIELDS = 5, MOST_CLASS = 1 << 24 }; /* a float holds every whole number up to this one */

int cmn_labels_open(struct cmn_labels *l, const char *name)
{
    const char *path = cmn_scatter_path(name);
    struct stat st;
    int reason;

    *l = (struct cmn_labels){.name = name};
    cmn_status_file(name);
    if (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        return 0; /* reading it may never end */
    }
    l->file = fopen(path, "re");
    reason = l->file ? 0 : errno;
    if (reason) {
        cmn_status_file(NULL);
    }
    return reason;
}

void cmn_labels_close(struct cmn_labels *l)
{
    if (l->file) {
        fclose(l->file);
    }
    cmn_status_file(NULL);
    free(l->text);
    *l = (struct cmn_labels){0};
}

/* Returns the number of fields of a line. */
static int count_fields(const char *s)
{
    static const char blank[] = " \t\r";
    int n = 0;

    for (s += strspn(s, blank); *s; s += strspn(s, blank)) {
        s += strcspn(s, blank);
        n++;
    }
    return n;
}

/* Says what a line looks like that is no label. */
static const char *hint(const char *s)
{
    int n = count_fields(s);

    if (cmn_text_is_utf16(s)) {
        return " (" CMN_UTF16 ")";
    }
    if (strchr(s, ',')) {
        return " (a number has a point, and a blank behind it, but no comma)";
    }
    if (n > FIELDS + 1 && n % 2) {
        return " (a polygon? Darknet trains with boxes: class x y width height)";
    }
    if (n == FIELDS + 1) {
        return " (six numbers, as with a confidence? a label has five: class x y width height)";
    }
    if (n == FIELDS && strcspn(s, " \t") != strspn(s, "0123456789-+")) {
        return " (the class is its number, from 0 on)";
    }
    return "";
}

static int bad(const struct cmn_labels *l)
{
    char shown[64]; /* the begin of the line, without bytes that would disturb a terminal */

    snprintf(shown, sizeof shown, "%s", l->text);
    for (char *c = shown; *c; c++) {
        *c = isprint((unsigned char)*c) ? *c : '?';
    }
    return cmn_fail("%s:%d: not a class and four numbers: %s%s", l->name, l->line, shown,
                    hint(l->text));
}

/* Returns 0, or -1 if the line is no label. */
static int parse(const char *s, struct cmn_label *label)
{
    float *const part[] = {&label->x, &label->y, &label->width, &label->height};
    char *end;
    long class;

    errno = 0;
    class = strtol(s, &end, 10);
    if (end == s || errno || class < -MOST_CLASS || class > MOST_CLASS) {
        return -1;
    }
    label->class = (int)class;
    for (int i = 0; i < FIELDS - 1; i++) {
        s = end;
        *part[i] = isspace((unsigned char)*s) ? strtof(s, &end) : 0;
        if (end == s || !isfinite(*part[i])) {
            return -1;
        }
    }
    return end[strspn(end, " \t\v\f")] ? -1 : 0;
}

/* Drops a byte order mark and the end of the line, and makes bytes of 0 visible. */
static void clean(struct cmn_labels *l, size_t n)
{
    char *s;

    for (size_t i = 0; i < n; i++) {
        l->text[i] = l->text[i] ? l->text[i] : '?';
    }
    s = l->line == 1 ? cmn_cfg_behind_mark(l->text) : l->text;
    memmove(l->text, s, strlen(s) + 1);
    for (n = strlen(l->text); n && strchr(" \t\v\f\r\n", l->text[n - 1]); n--) {
        l->text[n - 1] = '\0';
    }
}

int cmn_labels_next(struct cmn_labels *l, struct cmn_label *label)
{
    ssize_t n;

    if (!l->file) {
        l->failed = 1;
        return cmn_fail("%s: not a file", l->name);
    }
    /* Without memory for a line getline() fails and sets no flag of the stream. */
    while ((n = getline(&l->text, &l->room, l->file)) >= 0 && !ferror(l->file)) {
        l->line++;
        clean(l, (size_t)n);
        if (l->text[0]) {
            label->line = l->line;
            return parse(l->text, label) ? bad(l) : 1;
        }
    }
    l->failed = ferror(l->file) || !feof(l->file);
    return l->failed ? cmn_fail("%s: %s", l->name, strerror(errno)) : 0;
}

struct cmn_label *cmn_labels_read(const char *name, int *n)
{
    struct cmn_label *all = NULL, next;
    struct cmn_labels l;
    int error = cmn_labels_open(&l, name), got, room = 0;

    if (error) {
        cmn_fatal("%s: %s", name, strerror(error));
    }
    for (*n = 0; (got = cmn_labels_next(&l, &next)); (*n)++) {
        if (got < 0) {
            cmn_fatal_reason();
        }
        if (*n == room) {
            room = room ? 2 * room : 64;
            all = cmn_realloc(all, (size_t)room, sizeof *all);
        }
        all[*n] = next;
    }
    cmn_labels_close(&l);
    return all;
}
