#include "tools/doctor_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/cfg_check.h"
#include "config/cfg_keys.h"
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

static int is_utf16(FILE *file)
{
    char begin[3] = "";
    size_t n = fread(begin, 1, 2, file);

    rewind(file);
    return n == 2 && cmn_text_is_utf16(begin);
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
    if (is_utf16(file)) {
        cmn_fail(CMN_UTF16);
        fclose(file);
        return NULL;
    }
    each = cmn_malloc(1, sizeof *each);
    for (int number = 1; (length = getline(&s, &room, file)) >= 0; number++) {
        /* A line ends where Darknet's fgetl() ends it. */
        length -= length && s[length - 1] == '\n';
        length -= length && s[length - 1] == '\r';
        while (!blank && length && strchr(" \t", s[length - 1])) {
            length--;
        }
        s[length] = '\0';
        if (!blank && !length) {
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

/* ---- cfg and .data file ---- */

/* Adds what the check of a training has found. */
static void add_fault(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    static const enum cmn_problem_kind kind[] = {
        [CMN_CFG_BAD_LINE] = CMN_BAD_LINE,       [CMN_CFG_BAD_NUMBER] = CMN_BAD_NUMBER,
        [CMN_CFG_BAD_WORD] = CMN_BAD_WORD,       [CMN_CFG_REFUSED] = CMN_REFUSED_LAYER,
        [CMN_CFG_BAD_LAYER] = CMN_BAD_LAYER,     [CMN_CFG_BAD_FILTERS] = CMN_BAD_FILTERS,
        [CMN_CFG_BAD_ANCHORS] = CMN_BAD_ANCHORS, [CMN_CFG_BAD_CLASSES] = CMN_BAD_CLASSES,
        [CMN_CFG_UNUSED_KEY] = CMN_UNUSED_KEY,   [CMN_CFG_FOREIGN_KEY] = CMN_FOREIGN_KEY,
        [CMN_CFG_ADVICE] = CMN_ADVICE,
    };
    struct cmn_doctor *d = to;

    cmn_doctor_add(d, kind[fault], line, "%s", text);
}

static void check_files(struct cmn_doctor *d)
{
    const struct cmn_cfg_listener listener = {add_fault, d};
    const struct cmn_cfg_question q = {
        .name = d->cfg_name,
        .data_name = d->data_name,
        .cfg = &d->cfg,
        .data = &d->data,
        .answer = d->task == CMN_DOCTOR_BOXES     ? CMN_BOXES
                  : d->task == CMN_DOCTOR_CLASSES ? CMN_CLASSES
                                                  : CMN_NO_ANSWER,
        .trains = 1,
    };

    cmn_data_check(d->data_name, &d->data, &listener);
    cmn_cfg_check(&q, &listener);
}

enum { MOST_CLASSES = 1 << 24 };

/* Finds what the network is to find, and how many classes and boxes. */
static void find_task(struct cmn_doctor *d)
{
    const char *last = "";

    d->classes = cmn_cfg_int(&d->data, -1, "classes", 2);
    d->task = cmn_cfg_int(&d->data, -1, "tag", 0) ? CMN_DOCTOR_IMAGES : CMN_DOCTOR_CLASSES;
    if (cmn_cfg_boxes(&d->cfg, &d->classes, &d->max_boxes)) {
        d->task = CMN_DOCTOR_BOXES;
    }
    if (d->cfg.sections) {
        last = cmn_cfg_find(&d->cfg, d->cfg.sections - 1, NULL)->key;
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
    const char *name = cmn_cfg_text(&d->data, -1, key,
                                    i ? NULL : cmn_data_train_list(d->task == CMN_DOCTOR_BOXES));
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
    find_task(d);
    check_files(d);
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
