#include "tools/doctor_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/cfg_keys.h"
#include "config/cfg_numbers.h"
#include "engine/inference.h"
#include "mpi/files.h"
#include "trainer/session.h"

/* ---- reading ---- */

static void read_file(const struct cmn_doctor *d, const char *name, struct cmn_cfg_file *to,
                      enum cmn_cfg_blanks blanks)
{
    FILE *file = cmn_files_broadcast(d->t, name);

    if (!file) {
        cmn_fatal("%s: %s", name, strerror(errno));
    }
    cmn_cfg_parse(to, file, blanks);
    fclose(file);
}

/* Collective, blocking. Rank 0 reads a text file; every rank gets its *n lines. Blank lines are
 * left out unless `blank` is set. NULL with a reason if the file cannot be read. The lines are
 * never freed. */
static struct cmn_doctor_line *read_lines(const struct cmn_doctor *d, const char *name, int blank,
                                          int *n)
{
    FILE *file = cmn_files_broadcast(d->t, name);
    struct cmn_doctor_line *each = NULL;
    size_t room = 0;
    char *s = NULL;
    const char *text;
    ssize_t length;

    *n = 0;
    if (!file) {
        cmn_fail("%s", strerror(errno));
        return NULL;
    }
    each = cmn_malloc(1, sizeof *each);
    for (int number = 1; (length = getline(&s, &room, file)) >= 0; number++) {
        /* A line ends where Darknet's fgetl() ends it. */
        length -= length && s[length - 1] == '\n';
        length -= length && s[length - 1] == '\r';
        s[length] = '\0';
        if (!blank && !s[strspn(s, " \t")]) {
            continue;
        }
        text = number == 1 ? cmn_cfg_behind_mark(s) : s;
        if ((*n & (*n - 1)) == 0) {
            each = cmn_realloc(each, *n ? 2 * (size_t)*n : 1, sizeof *each);
        }
        each[(*n)++] = (struct cmn_doctor_line){.text = cmn_strdup(text), .line = number};
    }
    free(s);
    fclose(file);
    return each;
}

/* Returns the place of a problem, "file:line", or "file" if l is NULL. The text is static: the next
 * call overwrites it. */
static const char *where(const char *file, const struct cmn_cfg_line *l)
{
    static char text[256];

    if (l) {
        snprintf(text, sizeof text, "%.200s:%d", file, l->line);
    } else {
        snprintf(text, sizeof text, "%.200s", file);
    }
    return text;
}

/* ---- the .data file ---- */

static void check_lines(struct cmn_doctor *d, const char *name, const struct cmn_cfg_file *file,
                        int is_cfg)
{
    for (int i = 0; i < file->lines; i++) {
        const struct cmn_cfg_line *l = &file->each[i];
        if (!l->key) {
            cmn_doctor_add(d, CMN_BAD_LINE, l->line, "%s: not an option, KEY=VALUE: %.80s",
                           where(name, l), l->value);
        } else if (is_cfg && l->section < 0) {
            cmn_doctor_add(d, CMN_BAD_LINE, l->line,
                           "%s: %s stands before the first section, which is [net]", where(name, l),
                           l->key);
        }
    }
}

/* Adds the numbers that Darknet would refuse. If a section has a key twice, the first one
 * counts. */
static void check_numbers(struct cmn_doctor *d, const char *name, const struct cmn_cfg_file *file,
                          int is_cfg)
{
    char why[160];

    for (int i = 0; i < file->lines; i++) {
        const struct cmn_cfg_line *l = &file->each[i], *type = NULL;
        const struct cmn_cfg_number *number = NULL;
        if (is_cfg && l->section >= 0) {
            type = cmn_cfg_find(file, l->section, NULL);
        }
        if (l->key && (type || !is_cfg)) {
            number = cmn_cfg_number_find(type ? type->key : NULL, l->key);
        }
        if (number && l == cmn_cfg_find(file, l->section, l->key) &&
            cmn_cfg_number_check(number, l->value, why, sizeof why)) {
            cmn_doctor_add(d, CMN_BAD_NUMBER, l->line, "%s: %s=%.80s: %s", where(name, l), l->key,
                           l->value, why);
        }
    }
}

static void check_data_keys(struct cmn_doctor *d)
{
    char why[160];

    for (int i = 0; i < d->data.lines; i++) {
        const struct cmn_cfg_line *l = &d->data.each[i];
        int again = l->key && l != cmn_cfg_find(&d->data, l->section, l->key);
        if (l->key && cmn_data_key_describe(l->key, again, why, sizeof why)) {
            cmn_doctor_add(d, CMN_UNUSED_KEY, l->line, "%s: %s=%.80s %s", where(d->data_name, l),
                           l->key, l->value, why);
        }
    }
}

/* ---- layers that find boxes ---- */

static void check_anchors(struct cmn_doctor *d, int section)
{
    char why[256];
    const struct cmn_cfg_line *bad = cmn_cfg_bad_anchors(&d->cfg, section, why, sizeof why);

    if (bad) {
        cmn_doctor_add(d, CMN_BAD_ANCHORS, bad->line, "%s: %s", where(d->cfg_name, bad), why);
    }
    bad = cmn_cfg_bad_mask(&d->cfg, section, why, sizeof why);
    if (bad) {
        cmn_doctor_add(d, CMN_BAD_ANCHORS, bad->line, "%s: %s", where(d->cfg_name, bad), why);
    }
}

static int is_convolutional(const char *type)
{
    return type && (!strcmp(type, "[convolutional]") || !strcmp(type, "[conv]"));
}

static void check_filters(struct cmn_doctor *d, int section, long long expected, const char *how)
{
    const struct cmn_cfg_line *before = cmn_cfg_find(&d->cfg, section - 1, NULL);
    const struct cmn_cfg_line *filters = cmn_cfg_find(&d->cfg, section - 1, "filters");
    const struct cmn_cfg_line *own = cmn_cfg_find(&d->cfg, section, NULL);
    int has = cmn_cfg_int(&d->cfg, section - 1, "filters", 1);

    if (before && is_convolutional(before->key) && has != expected) {
        cmn_doctor_add(d, CMN_BAD_FILTERS, before->line,
                       "%s: filters=%d before %s of line %d, which needs filters=%lld: %s",
                       where(d->cfg_name, filters ? filters : before), has, own->key, own->line,
                       expected, how);
    }
}

static void check_classes(struct cmn_doctor *d, int section, int classes)
{
    const struct cmn_cfg_line *in_data = cmn_cfg_find(&d->data, -1, "classes");
    const struct cmn_cfg_line *in_cfg = cmn_cfg_find(&d->cfg, section, "classes");
    char of_data[256];

    if (in_data && atoi(in_data->value) != classes) {
        snprintf(of_data, sizeof of_data, "%s", where(d->data_name, in_data));
        cmn_doctor_add(d, CMN_BAD_CLASSES, in_cfg ? in_cfg->line : 0,
                       "%s: %sclasses=%d, and %s says classes=%d",
                       where(d->cfg_name, in_cfg ? in_cfg : cmn_cfg_find(&d->cfg, section, NULL)),
                       in_cfg ? "" : "without a number ", classes, of_data, atoi(in_data->value));
    }
}

/* Checks one section [yolo], [Gaussian_yolo] or [region]. */
static void check_boxes_layer(struct cmn_doctor *d, int section, const char *type)
{
    int is_yolo = type[1] != 'r';
    const struct cmn_cfg_line *mask = is_yolo ? cmn_cfg_find(&d->cfg, section, "mask") : NULL;
    int classes = cmn_cfg_int(&d->cfg, section, "classes", 20);
    int num = cmn_cfg_int(&d->cfg, section, "num", 1);
    int coords = type[1] == 'G' ? 8 : is_yolo ? 4 : cmn_cfg_int(&d->cfg, section, "coords", 4);
    int anchors = mask ? cmn_cfg_numbers_in(mask->value) : num;
    char how[96];

    check_classes(d, section, classes);
    check_anchors(d, section);
    snprintf(how, sizeof how, "%d anchor%s %s (classes=%d + %lld)", anchors,
             anchors == 1 ? "" : "s", mask ? "in mask *" : "*", classes, coords + 1LL);
    check_filters(d, section, anchors * (classes + coords + 1LL), how);
    d->classes = classes;
    d->max_boxes = cmn_cfg_int(&d->cfg, section, "max", is_yolo ? 90 : 30);
}

enum { MOST_CLASSES = 1 << 24 };

static void check_layers(struct cmn_doctor *d)
{
    const struct cmn_cfg_line *first = cmn_cfg_find(&d->cfg, 0, NULL);
    const char *last = "";

    if (!first || (strcmp(first->key, "[net]") && strcmp(first->key, "[network]"))) {
        cmn_doctor_add(d, CMN_BAD_LINE, 0, "%s: the first section is %s, and must be [net]",
                       where(d->cfg_name, first), first ? first->key : "missing");
    }
    d->classes = cmn_cfg_int(&d->data, -1, "classes", 2);
    d->task = cmn_cfg_int(&d->data, -1, "tag", 0) ? CMN_DOCTOR_IMAGES : CMN_DOCTOR_CLASSES;
    for (int s = 0; s < d->cfg.sections; s++) {
        last = cmn_cfg_find(&d->cfg, s, NULL)->key;
        if (cmn_cfg_has_anchors(last)) {
            d->task = CMN_DOCTOR_BOXES;
            check_boxes_layer(d, s, last);
        } else if (!strcmp(last, "[detection]")) {
            d->task = CMN_DOCTOR_BOXES;
            check_classes(d, s, d->classes = cmn_cfg_int(&d->cfg, s, "classes", 1));
        }
    }
    if (!strcmp(last, "[iseg]") || !strcmp(last, "[logistic]") || !strcmp(last, "[l2norm]")) {
        d->task = CMN_DOCTOR_IMAGES;
    }
    if (d->classes < 0 || d->classes > MOST_CLASSES) {
        cmn_fatal("%s: classes=%d: must be from 0 to %d",
                  d->task == CMN_DOCTOR_BOXES ? d->cfg_name : d->data_name, d->classes,
                  MOST_CLASSES);
    }
    d->channels = cmn_cfg_int(&d->cfg, 0, "channels", 3);
    d->channels = d->channels < 1 || d->channels > 4 ? 3 : d->channels;
}

/* ---- names and labels ---- */

/* Adds the problem of a file that the .data file names with `key`, or that Darknet uses without
 * this key. */
static void add_bad_file(struct cmn_doctor *d, const char *key, const char *name, const char *why)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(&d->data, -1, key);

    if (l) {
        cmn_doctor_add(d, CMN_BAD_FILE, l->line, "%s: %s=%s: %s", where(d->data_name, l), key, name,
                       why);
    } else {
        cmn_doctor_add(d, CMN_BAD_FILE, 0, "%s: without %s= Darknet takes %s: %s", d->data_name,
                       key, name, why);
    }
}

/* Reads the names of classes, one per line. Empty lines at the end do not count. */
static struct cmn_doctor_line *read_names(struct cmn_doctor *d, const char *key, const char *name,
                                          int *n)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(&d->data, -1, key);
    struct cmn_doctor_line *each = read_lines(d, name, 1, n);

    if (!each) {
        add_bad_file(d, key, name, cmn_reason());
        return NULL;
    }
    while (*n && !each[*n - 1].text[0]) {
        --*n;
    }
    if (*n < d->classes) {
        cmn_doctor_add(d, CMN_BAD_NAMES, l ? l->line : 0, CMN_TOO_FEW_NAMES, name, *n, key,
                       d->classes);
    } else if (*n > d->classes && d->task == CMN_DOCTOR_BOXES) {
        cmn_doctor_add(d, CMN_BAD_NAMES, l ? l->line : 0, "%s:%d: %d lines for classes=%d", name,
                       each[d->classes].line, *n, d->classes);
    }
    return each;
}

static void read_labels(struct cmn_doctor *d)
{
    const char *name = cmn_cfg_text(&d->data, -1, "labels", "data/labels.list");
    struct cmn_doctor_line *each = read_names(d, "labels", name, &d->labels);

    d->labels = d->labels < d->classes ? d->labels : d->classes;
    d->label = cmn_calloc((size_t)d->labels, sizeof *d->label);
    for (int i = 0; i < d->labels; i++) {
        d->label[i] = (char *)each[i].text;
        if (!each[i].text[0]) {
            cmn_doctor_add(d, CMN_BAD_NAMES, each[i].line, "%s:%d: the label is empty", name,
                           each[i].line);
        }
    }
}

/* ---- lists ---- */

static void read_list(struct cmn_doctor *d, int i)
{
    const char *key = i ? "valid" : "train";
    const char *name = cmn_cfg_text(&d->data, -1, key, i ? NULL : "data/train.list");
    const struct cmn_cfg_line *l = cmn_cfg_find(&d->data, -1, key);

    if (i && name && d->list_name[0] && !strcmp(name, d->list_name[0])) {
        cmn_doctor_add(
            d, CMN_TRAINED_AND_VALID, l->line,
            "%s: valid=%s is the list that train= names: no image tells what the network "
            "has not been trained with",
            where(d->data_name, l), name);
        return;
    }
    d->list_name[i] = name;
    d->line[i] = name ? read_lines(d, name, 0, &d->lines[i]) : NULL;
    for (int k = 0; k < d->lines[i]; k++) {
        d->line[i][k].list = i;
    }
    if (name && (!d->line[i] || !d->lines[i])) {
        add_bad_file(d, key, name, d->line[i] ? "the list is empty" : cmn_reason());
    }
}

/* Checks the folder of weights. It may be missing: a training makes it. */
static void check_backup(struct cmn_doctor *d)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(&d->data, -1, "backup");
    const char *why = l && !d->t->rank ? cmn_files_unwritable(l->value) : NULL;

    if (!l) {
        cmn_doctor_add(d, CMN_BAD_FILE, 0, "%s " CMN_NO_BACKUP, d->data_name);
    } else if (why) {
        add_bad_file(d, "backup", l->value, why);
    }
}

void cmn_doctor_files(struct cmn_doctor *d)
{
    const char *names;

    read_file(d, d->data_name, &d->data, CMN_CFG_BLANKS_STAY);
    read_file(d, d->cfg_name, &d->cfg, CMN_CFG_BLANKS_GO);
    check_lines(d, d->data_name, &d->data, 0);
    check_lines(d, d->cfg_name, &d->cfg, 1);
    check_numbers(d, d->data_name, &d->data, 0);
    check_numbers(d, d->cfg_name, &d->cfg, 1);
    check_data_keys(d);
    check_layers(d);
    names = cmn_cfg_text(&d->data, -1, "names", NULL);
    if (names && d->task != CMN_DOCTOR_CLASSES) {
        int n;
        read_names(d, "names", names, &n);
    }
    if (d->task == CMN_DOCTOR_CLASSES) {
        read_labels(d);
    }
    for (int i = 0; i < 2; i++) {
        read_list(d, i);
    }
    check_backup(d);
}
