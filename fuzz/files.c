/* Targets that read files of other kinds. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "data.h"
#include "image.h"
#include "option_list.h"
#include "tree.h"
#include "utils.h"

#include "config/cfg_file.h"
#include "config/cfg_keys.h"

/* Of src/data.c, which its header does not name. */
void fill_truth_detection(char *path, int num_boxes, float *truth, int classes, int flip, float dx,
                          float dy, float sx, float sy);
void fill_truth_region(char *path, float *truth, int classes, int num_boxes, int flip, float dx,
                       float dy, float sx, float sy);
void fill_truth_swag(char *path, float *truth, int classes, int flip, float dx, float dy, float sx,
                     float sy);
void fill_truth_iseg(char *path, int num_boxes, float *truth, int classes, int w, int h,
                     augment_args aug, int flip, int mw, int mh);
void fill_truth_mask(char *path, int num_boxes, float *truth, int classes, int w, int h,
                     augment_args aug, int flip, int mw, int mh);
void fill_hierarchy(float *truth, int k, tree *hierarchy);
matrix load_tags_paths(char **paths, int n, int k);
matrix load_regression_labels_paths(char **paths, int n, int k);
data load_cifar10_files(char **paths, int n);
char **find_replace_paths(char **paths, int n, char *find, char *replace);

enum { CLASSES = 5, BOXES = 7, SIDE = 6 };

/* As `darknet cmn doctor` reads cfg and .data file. */
static void parse_lines(const char *name, enum cmn_cfg_blanks blanks)
{
    FILE *file = fopen(name, "r");
    struct cmn_cfg_file cfg;
    char text[64];

    cmn_cfg_parse(&cfg, file, blanks);
    fclose(file);
    cmn_cfg_keys_elsewhere(&cfg, text, sizeof text);
    for (int i = -1; i < cfg.sections; i++) {
        cmn_cfg_text(&cfg, i, "train", NULL);
        cmn_cfg_int(&cfg, i, "classes", 2);
    }
    cmn_cfg_free(&cfg);
}

void fuzz_data(const uint8_t *data, size_t size)
{
    char *name = fuzz_file(0, data, size);
    list *options;
    metadata m;

    parse_lines(name, CMN_CFG_BLANKS_STAY);
    parse_lines(name, CMN_CFG_BLANKS_GO);
    options = read_data_cfg(name);
    option_find_str(options, "train", "train");
    option_find_int(options, "classes", 2);
    option_find_float(options, "top", 1);
    option_unused(options);
    free_list(options);
    m = get_metadata(name);
    (void)m;
}

static void read_list(char *name)
{
    list *paths = get_paths(name);

    free(list_to_array(paths));
    free_list_contents(paths);
    free_list(paths);
    get_labels(name);
}

/* The loaders change ".jpg" in an image's name to ".txt", and a name without it stays: the
 * "image" is its own label file. */
static void read_boxes_of(char *name)
{
    float truth[BOXES * BOXES * (5 + CLASSES)] = {0};
    float wide[90 * (4 + CLASSES)] = {0};

    fill_truth_detection(name, BOXES, truth, CLASSES, 1, .1, -.1, 1.5, .5);
    memset(truth, 0, sizeof truth);
    fill_truth_region(name, truth, CLASSES, BOXES, 0, -.1, .1, .5, 1.5);
    fill_truth_swag(name, wide, CLASSES, 0, 0, 0, 1, 1);
}

static void read_masks(char *name)
{
    augment_args a = {.w = SIDE, .h = SIDE, .scale = 1, .rad = .1, .dx = 1, .dy = 0, .aspect = 1};
    float truth[BOXES * (SIDE * SIDE + 5)] = {0};

    fill_truth_iseg(name, BOXES, truth, CLASSES, SIDE, SIDE, a, 1, SIDE, SIDE);
    fill_truth_mask(name, BOXES, truth, CLASSES, SIDE, SIDE, a, 0, SIDE, SIDE);
}

static void read_hierarchy(char *name)
{
    tree *t = read_tree(name);
    float x[64] = {0};

    if (t->n <= 64) {
        for (int i = 0; i < t->n; i++) {
            x[i] = .5;
            get_hierarchy_probability(x, t, i, 1);
        }
        hierarchy_predictions(x, t->n, t, 0, 1);
        hierarchy_top_prediction(x, t, .1, 1);
        x[0] = 1;
        fill_hierarchy(x, t->n, t);
    }
    change_leaves(t, name);
}

static void read_map_file(char *name)
{
    free(read_map(name));
}

static void read_tags(char *name)
{
    free_matrix(load_tags_paths(&name, 1, CLASSES));
}

static void read_numbers(char *name)
{
    free_matrix(load_regression_labels_paths(&name, 1, 3));
}

static void read_cifar(char *name)
{
    free_data(load_cifar10_files(&name, 1));
}

static void read_text(char *name)
{
    free(read_file(name));
}

static void read_csv(char *name)
{
    matrix m = csv_to_matrix(name);

    (void)m;
}

/* The first byte chooses what the rest is. */
void fuzz_lists(const uint8_t *data, size_t size)
{
    static void (*const readers[])(char *) = {
        read_list, read_boxes_of, read_masks, read_hierarchy, read_map_file,
        read_tags, read_numbers,  read_cifar, read_text,      read_csv,
    };

    if (size > 0) {
        readers[data[0] % (sizeof readers / sizeof readers[0])](fuzz_file(0, data + 1, size - 1));
    }
}

/* A NUL ends a name, as in a list a newline does. */
static char *a_name(const uint8_t *data, size_t size)
{
    char *name = malloc(size + 1);

    if (name) {
        memcpy(name, data, size);
        name[size] = '\0';
    }
    return name;
}

void fuzz_paths(const uint8_t *data, size_t size)
{
    float truth[BOXES * BOXES * (5 + CLASSES)] = {0};
    char *labels[] = {"zero", "one", "two", "three", "four"};
    char *name;

    if (size < 1 || !(name = a_name(data + 1, size - 1))) {
        return;
    }
    switch (data[0] % 9) {
    case 0:
        fill_truth(name, labels, CLASSES, truth);
        break;
    case 1:
        fill_truth_detection(name, BOXES, truth, CLASSES, 0, 0, 0, 1, 1);
        break;
    case 2:
        fill_truth_region(name, truth, CLASSES, BOXES, 0, 0, 0, 1, 1);
        break;
    case 3:
        free_matrix(load_tags_paths(&name, 1, CLASSES));
        break;
    case 4:
        free_matrix(load_regression_labels_paths(&name, 1, 3));
        break;
    case 5:
        load_image(name, 0, 0, 3);
        break;
    case 6:
        basecfg(name);
        break;
    case 7:
        free_ptrs((void **)find_replace_paths(&name, 1, "images", "labels"), 1);
        break;
    default:
        read_intlist(name, &(int){0}, 0);
    }
    free(name);
}

/* The first byte says how many channels are wanted, and of which size. */
void fuzz_image(const uint8_t *data, size_t size)
{
    image m;

    if (size < 1) {
        return;
    }
    m = load_image(fuzz_file(0, data + 1, size - 1), data[0] & 8 ? SIDE : 0, data[0] & 8 ? SIDE : 0,
                   data[0] % 5);
    for (size_t i = 0; i < (size_t)m.w * m.h * m.c; i++) {
        if (!(m.data[i] >= 0 && m.data[i] <= 1)) {
            abort(); /* MemorySanitizer sees here what no byte of the file made */
        }
    }
    free_image(m);
}
