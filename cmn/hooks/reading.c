/* The calls of cmn.h for the files that Darknet reads as text: cfg, .data file and lists. Rank 0
 * reads them for all ranks, and Darknet gets a clean copy: without comments, blanks around keys and
 * values, marks of an encoding, and ends of lines as Windows writes them. */
#include "cmn.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/cfg_check.h"
#include "config/cfg_keys.h"
#include "config/cfg_numbers.h"
#include "config/pairs.h"
#include "data/labels.h"
#include "engine/darknet_tree.h"
#include "hooks/job.h"
#include "mpi/files.h"
#include "trainer/trainer.h"

/* The cfg and the .data file that Darknet has read last. */
static struct cmn_cfg_file cfg, data_cfg;
static char *cfg_name, *data_name;

/* ---- what is wrong with them ---- */

/* Ends the job at a fault. */
static void end(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    (void)to;
    (void)line;
    if (fault < CMN_CFG_UNUSED_KEY) {
        cmn_fatal("%s", text);
    }
}

/* Warns of a key without effect. Keys of AlexeyAB's Darknet come in one line, since its cfgs have
 * dozens of them, and advice is the doctor's. */
static void warn(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    (void)to;
    (void)line;
    if (fault == CMN_CFG_UNUSED_KEY && cmn_job.topology.rank == 0) {
        cmn_warn("%s", text);
    }
}

/* Faults come first, so that the line of one stands by itself. */
static void check_cfg(int warns)
{
    const struct cmn_command *c = cmn_job.command;
    struct cmn_cfg_question q = {.name = cfg_name, .data_name = data_name, .cfg = &cfg};

    if (!c) {
        return; /* `darknet cmn doctor` has checked it; your own programs may read any */
    }
    q.data = data_name ? &data_cfg : NULL;
    q.trains = c->does == CMN_TRAINS && !cmn_job.evaluating;
    q.driver = q.trains ? c->driver : NULL;
    q.answer = c->answer;
    q.epochs = cmn_job.options.epochs > 0;
    cmn_cfg_check(&q, &(struct cmn_cfg_listener){end, NULL});
    if (warns) {
        cmn_cfg_check(&q, &(struct cmn_cfg_listener){warn, NULL});
    }
}

static void tell_elsewhere(void)
{
    char text[800];
    int n = cmn_cfg_keys_elsewhere(&cfg, text, sizeof text);

    if (n && cmn_job.command && cmn_job.topology.rank == 0) {
        cmn_warn("%s: %d line%s no effect: AlexeyAB's Darknet has these keys, this one has not: %s",
                 cfg_name, n, n == 1 ? " has" : "s have", text);
    }
}

void cmn_read_cfg_keys(void)
{
    char place[512];

    for (int i = 0; i < cfg.lines; i++) {
        const struct cmn_cfg_line *l = &cfg.each[i];
        if (l->section != 0 || strncmp(l->key, "cmn_", 4) != 0) {
            continue;
        }
        snprintf(place, sizeof place, "%s:%d", cfg_name, l->line);
        if (cmn_options_set_in_cfg(&cmn_job.options, l->key, l->value, place)) {
            cmn_fatal_reason();
        }
    }
}

/* ---- the clean copies ---- */

/* Parses `file`, which it closes, into `to`. Returns a stream over a clean copy of it, with a line
 * `first` (or "") before it. */
static FILE *clean(FILE *file, struct cmn_cfg_file *to, enum cmn_cfg_blanks blanks,
                   const char *first)
{
    char *text = NULL;
    size_t bytes;
    FILE *copy = open_memstream(&text, &bytes), *stream;

    cmn_cfg_free(to);
    cmn_cfg_parse(to, file, blanks);
    fclose(file);
    if (copy) {
        fputs(first, copy);
        cmn_cfg_print(to, copy);
    }
    if (!copy || fclose(copy)) {
        cmn_fatal("no memory for a copy of a cfg");
    }
    stream = cmn_files_stream(text, bytes);
    free(text);
    return stream;
}

static void keep_name(char **to, const char *name)
{
    free(*to);
    *to = cmn_strdup(name);
}

FILE *cmn_open_cfg(const char *name)
{
    FILE *file = cmn_job.on ? cmn_files_broadcast(&cmn_job.topology, name) : fopen(name, "r");
    char *text;
    int again;

    if (!cmn_job.on || !file) {
        return file;
    }
    text = cmn_files_text(file);
    again = cmn_job.cfg && !strcmp(cmn_job.cfg, text);
    free(cmn_job.cfg);
    cmn_job.cfg = text;
    keep_name(&cfg_name, name);
    file = clean(file, &cfg, CMN_CFG_BLANKS_GO, "");
    if (!again) {
        tell_elsewhere(); /* one of these keys may be the cause of a fault */
        check_cfg(1);
    }
    return file;
}

/* Writes the line of a .data file that --save-weights of the command line stands for. */
static void line_of_arguments(char *line, size_t bytes)
{
    const char *n = cmn_job.save_weights;
    char why[160];

    line[0] = '\0';
    if (n && cmn_cfg_number_check(cmn_cfg_number_find("", "saveweights"), n, why, sizeof why)) {
        cmn_fatal("command line: --save-weights %s: %s", n, why);
    }
    if (n) {
        snprintf(line, bytes, "saveweights=%s\n", n);
    }
}

FILE *cmn_open_data(const char *name)
{
    FILE *file = cmn_job.on ? cmn_files_broadcast(&cmn_job.topology, name) : fopen(name, "r");
    char first[64];

    if (!cmn_job.on || !file) {
        return file;
    }
    keep_name(&data_name, name);
    line_of_arguments(first, sizeof first);
    file = clean(file, &data_cfg, CMN_CFG_BLANKS_STAY, first);
    if (!cmn_job.evaluating && cmn_job.command) { /* -map reads it again */
        cmn_data_check(name, &data_cfg, &(struct cmn_cfg_listener){end, NULL});
        cmn_data_check(name, &data_cfg, &(struct cmn_cfg_listener){warn, NULL});
        if (cfg_name) {
            check_cfg(0);
        }
    }
    return file;
}

int cmn_line_is_clean(void)
{
    return cmn_job.on;
}

/* Returns whether the .data file names this file as a list of images. */
static int is_list(const char *name)
{
    static const struct {
        const char *key, *without; /* what Darknet reads if there is no such line */
    } lists[] = {{"train", "data/train.list"},
                 {"train", "data/train.txt"},
                 {"valid", "data/train.list"},
                 {"valid", "data/coco_val_5k.list"},
                 {"test", ""},
                 {"difficult", ""}};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && data_name; i++) {
        if (!strcmp(name, cmn_cfg_text(&data_cfg, -1, lists[i].key, lists[i].without))) {
            return 1;
        }
    }
    return !strcmp(name, cmn_job.train_list);
}

/* Returns a clean copy of a list, whose stream it closes. */
static FILE *clean_list(FILE *file, const char *name)
{
    char *text = cmn_files_text(file);
    long bytes;

    fseek(file, 0, SEEK_END);
    bytes = cmn_list_clean(text, (size_t)ftell(file), is_list(name));
    fclose(file);
    if (bytes < 0) {
        cmn_fatal("%s: %s", name, cmn_reason());
    }
    file = cmn_files_stream(text, (size_t)bytes);
    free(text);
    return file;
}

/* The map= that Darknet has read last: its number of lines, and the classes of its layer. */
static struct {
    int lines, classes;
} map;

/* Returns the section of the cfg that has map=NAME, or -1. */
static int section_of_map(const char *name)
{
    for (int i = 1; i < cfg.sections; i++) {
        if (!strcmp(cmn_cfg_text(&cfg, i, "map", ""), name)) {
            return i;
        }
    }
    return -1;
}

/* Checks a map of classes, and appends the line at which the reader of labels ends: Darknet would
 * read behind the last one. Closes `file` and returns another. */
static FILE *check_map(FILE *file, const char *name, int section)
{
    char *text = cmn_files_text(file), *s = text, *end;
    size_t bytes = strlen(text);

    map.classes = cmn_cfg_int(&cfg, section, "classes", 20);
    for (map.lines = 0; *s; map.lines++, s = end + 1) {
        long class = strtol(s, &end, 10);
        if (end == s || *end != '\n' || class < 0 || class >= map.classes) {
            cmn_fatal("%s:%d: %.*s is none of the classes 0 to %d of %s in %s", name, map.lines + 1,
                      (int)strcspn(s, "\n"), s, map.classes - 1,
                      cmn_cfg_find(&cfg, section, NULL)->key, cfg_name);
        }
    }
    fclose(file);
    text = cmn_realloc(text, bytes + 4, 1);
    memcpy(text + bytes, "-1\n", 4);
    file = cmn_files_stream(text, bytes + 3);
    free(text);
    return file;
}

/* Looks at a map= of the .data file, which leads from ImageNet's classes to those of a tree. */
static void look_at_data_map(FILE *file, const char *name)
{
    char line[64], *end;

    cmn_job.map_lines = 0;
    while (fgets(line, sizeof line, file)) {
        long class = strtol(line, &end, 10);
        cmn_job.map_lines++;
        if (end == line || end[strspn(end, " \t")] != '\n' || class < 0) {
            cmn_fatal("%s:%d: not the number of a class", name, cmn_job.map_lines);
        }
        cmn_job.mapped = class > cmn_job.mapped ? class : cmn_job.mapped;
    }
    rewind(file);
}

/* A tree= of the .data file has a line for each class. */
static void check_data_tree(FILE *file, const char *name)
{
    int lines = (int)cmn_files_count_lines(file),
        classes = cmn_cfg_int(&data_cfg, -1, "classes", 2);

    if (lines != classes) {
        cmn_fatal("%s has %d lines, and %s says classes=%d: a tree has a line for each", name,
                  lines, data_name, classes);
    }
}

void cmn_check_labels(const char *file, const struct cmn_label *label, int n)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int classes, max;

    if (!cmn_cfg_boxes(&cfg, &classes, &max)) {
        return;
    }
    for (int i = 0; i < n; i++) {
        int class = label[i].class;
        if (class < 0 || class >= (map.lines ? map.lines : classes)) {
            cmn_fatal(CMN_BAD_CLASS "%s", file, label[i].line, class, classes, classes - 1,
                      map.lines ? ", to which its map= does not lead" : "");
        }
    }
    if (max && n > max && !atomic_flag_test_and_set(&told)) {
        cmn_warn_here(CMN_MANY_LABELLED ". 'darknet cmn doctor' lists all such images", file,
                      (long)n, max);
    }
}

FILE *cmn_fopen(const char *name)
{
    FILE *file = cmn_job.on ? cmn_files_broadcast(&cmn_job.topology, name) : fopen(name, "r");

    if (!cmn_job.on || !file) {
        return file;
    }
    file = clean_list(file, name);
    if (section_of_map(name) > 0) {
        return check_map(file, name, section_of_map(name));
    }
    if (data_name && !strcmp(name, cmn_cfg_text(&data_cfg, -1, "map", ""))) {
        look_at_data_map(file, name);
    }
    if (data_name && !strcmp(name, cmn_cfg_text(&data_cfg, -1, "tree", ""))) {
        check_data_tree(file, name);
    }
    if (!strcmp(name, cmn_job.train_list)) {
        cmn_job.train_images = cmn_files_count_lines(file);
        if (cmn_job.trainer) {
            cmn_feed_scatter(&cmn_job.trainer->feed, file);
            cmn_trainer_list(cmn_job.trainer, file);
        }
    }
    return file;
}

/* ---- the .data file ---- */

static struct cmn_data_cfg read_data(struct list *options)
{
    struct cmn_data_cfg d = {
        .backup = option_find_str(options, "backup", NULL),
        .train = option_find_str(options, "train", NULL),
        .valid = option_find_str(options, "valid", NULL),
        .labels = option_find_str(options, "labels", NULL),
        .names = option_find_str(options, "names", NULL),
        .eval = option_find_str(options, "eval", NULL),
        .classes = option_find_int_quiet(options, "classes", 0),
        .top = option_find_int_quiet(options, "top", 1),
        .tag = cmn_job.command->answer == CMN_CLASSES && option_find_int_quiet(options, "tag", 0),
    };

    /* Images with several tags have no single class, so top-1 would be meaningless. */
    if (d.tag) {
        d.valid = NULL;
    }
    return d;
}

void cmn_after_data_cfg(struct list *options)
{
    struct cmn_data_cfg d;

    if (!cmn_job.on || cmn_job.evaluating) {
        return; /* -map reads the .data file again */
    }
    d = read_data(options);
    if (cmn_job.command->does == CMN_EVALUATES) {
        cmn_session_names(&cmn_job, &d);
    }
    if (cmn_job.command->does == CMN_TRAINS) {
        if (d.tag && cmn_pairs_check_trait(&cmn_job.options, CMN_TRAINS_OTHER_FILES,
                                           "tag=1 in the .data file")) {
            cmn_fatal_reason();
        }
        cmn_session_data(&cmn_job, &d);
        if (cmn_job.trainer) {
            cmn_trainer_resume(cmn_job.trainer);
        }
    }
}
