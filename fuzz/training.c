/* A whole training: command line, cfg, .data file, list, labels. Runs two steps of it through
 * Darknet's own main(), and mutates its parts by the tables of numbers and keys. */
#include "fuzz.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "darknet.h"

#include "base/log.h"
#include "config/arguments.h"
#include "config/cfg_numbers.h"
#include "config/options.h"

int darknet_main(int argc, char **argv);

/* By the linker (--wrap): what Darknet's trainers call, and what was there. */
float __wrap_train_network(network *net, data d);
float __real_train_network(network *net, data d);
float __wrap_train_network_datum(network *net);
float __real_train_network_datum(network *net);
void __wrap_save_weights(network *net, char *file);

/* An image of 12 x 9 pixels. */
static const unsigned char png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x0c, 0x00, 0x00, 0x00, 0x09, 0x08, 0x02, 0x00, 0x00, 0x00, 0x89, 0xda, 0x5a,
    0x03, 0x00, 0x00, 0x01, 0x58, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x01, 0x4d, 0x01, 0xb2, 0xfe,
    0x00, 0x00, 0x32, 0x64, 0x14, 0x46, 0x78, 0x28, 0x5a, 0x8c, 0x3c, 0x6e, 0xa0, 0x50, 0x82, 0xb4,
    0x64, 0x96, 0xc8, 0x78, 0xaa, 0xdc, 0x8c, 0xbe, 0xf0, 0xa0, 0xd2, 0x04, 0xb4, 0xe6, 0x18, 0xc8,
    0xfa, 0x2c, 0xdc, 0x0e, 0x40, 0x00, 0x07, 0x39, 0x6b, 0x1b, 0x4d, 0x7f, 0x2f, 0x61, 0x93, 0x43,
    0x75, 0xa7, 0x57, 0x89, 0xbb, 0x6b, 0x9d, 0xcf, 0x7f, 0xb1, 0xe3, 0x93, 0xc5, 0xf7, 0xa7, 0xd9,
    0x0b, 0xbb, 0xed, 0x1f, 0xcf, 0x01, 0x33, 0xe3, 0x15, 0x47, 0x00, 0x0e, 0x40, 0x72, 0x22, 0x54,
    0x86, 0x36, 0x68, 0x9a, 0x4a, 0x7c, 0xae, 0x5e, 0x90, 0xc2, 0x72, 0xa4, 0xd6, 0x86, 0xb8, 0xea,
    0x9a, 0xcc, 0xfe, 0xae, 0xe0, 0x12, 0xc2, 0xf4, 0x26, 0xd6, 0x08, 0x3a, 0xea, 0x1c, 0x4e, 0x00,
    0x15, 0x47, 0x79, 0x29, 0x5b, 0x8d, 0x3d, 0x6f, 0xa1, 0x51, 0x83, 0xb5, 0x65, 0x97, 0xc9, 0x79,
    0xab, 0xdd, 0x8d, 0xbf, 0xf1, 0xa1, 0xd3, 0x05, 0xb5, 0xe7, 0x19, 0xc9, 0xfb, 0x2d, 0xdd, 0x0f,
    0x41, 0xf1, 0x23, 0x55, 0x00, 0x1c, 0x4e, 0x80, 0x30, 0x62, 0x94, 0x44, 0x76, 0xa8, 0x58, 0x8a,
    0xbc, 0x6c, 0x9e, 0xd0, 0x80, 0xb2, 0xe4, 0x94, 0xc6, 0xf8, 0xa8, 0xda, 0x0c, 0xbc, 0xee, 0x20,
    0xd0, 0x02, 0x34, 0xe4, 0x16, 0x48, 0xf8, 0x2a, 0x5c, 0x00, 0x23, 0x55, 0x87, 0x37, 0x69, 0x9b,
    0x4b, 0x7d, 0xaf, 0x5f, 0x91, 0xc3, 0x73, 0xa5, 0xd7, 0x87, 0xb9, 0xeb, 0x9b, 0xcd, 0xff, 0xaf,
    0xe1, 0x13, 0xc3, 0xf5, 0x27, 0xd7, 0x09, 0x3b, 0xeb, 0x1d, 0x4f, 0xff, 0x31, 0x63, 0x00, 0x2a,
    0x5c, 0x8e, 0x3e, 0x70, 0xa2, 0x52, 0x84, 0xb6, 0x66, 0x98, 0xca, 0x7a, 0xac, 0xde, 0x8e, 0xc0,
    0xf2, 0xa2, 0xd4, 0x06, 0xb6, 0xe8, 0x1a, 0xca, 0xfc, 0x2e, 0xde, 0x10, 0x42, 0xf2, 0x24, 0x56,
    0x06, 0x38, 0x6a, 0x00, 0x31, 0x63, 0x95, 0x45, 0x77, 0xa9, 0x59, 0x8b, 0xbd, 0x6d, 0x9f, 0xd1,
    0x81, 0xb3, 0xe5, 0x95, 0xc7, 0xf9, 0xa9, 0xdb, 0x0d, 0xbd, 0xef, 0x21, 0xd1, 0x03, 0x35, 0xe5,
    0x17, 0x49, 0xf9, 0x2b, 0x5d, 0x0d, 0x3f, 0x71, 0x00, 0x38, 0x6a, 0x9c, 0x4c, 0x7e, 0xb0, 0x60,
    0x92, 0xc4, 0x74, 0xa6, 0xd8, 0x88, 0xba, 0xec, 0x9c, 0xce, 0x00, 0xb0, 0xe2, 0x14, 0xc4, 0xf6,
    0x28, 0xd8, 0x0a, 0x3c, 0xec, 0x1e, 0x50, 0x00, 0x32, 0x64, 0x14, 0x46, 0x78, 0xfd, 0xa0, 0xa3,
    0xf1, 0x42, 0xd5, 0x63, 0x41, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82};

static sigjmp_buf done;
static int steps, is_target; /* is_target: of this process, which has no other one */

/* Two steps say what there is to say, and one of a network that would take long none. */
static void count_step(const network *net)
{
    double work = 0;

    if (!is_target) {
        return;
    }
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        work += (double)l->workspace_size / sizeof(float) * (l->n + 1) +
                (double)l->outputs * (l->inputs + 1.) / (l->type == CONVOLUTIONAL ? 1e3 : 1) +
                (double)l->outputs * l->size * l->size;
    }
    if (++steps > 2 || work * net->batch > 3e7) {
        siglongjmp(done, 1);
    }
}

/* Numbers of a cfg that are taken make no image and no truth of nan. */
static void check_matrix(matrix m, const char *what)
{
    for (int i = 0; i < m.rows; i++) {
        for (int k = 0; k < m.cols; k++) {
            unsigned bits;
            memcpy(&bits, &m.vals[i][k], sizeof bits);
            if ((bits & 0x7f800000) == 0x7f800000) {
                fprintf(stderr, "value %d of %s %d is not finite\n", k, what, i);
                abort();
            }
        }
    }
}

float __wrap_train_network(network *net, data d)
{
    count_step(net);
    check_matrix(d.X, "image");
    check_matrix(d.y, "truth");
    return __real_train_network(net, d);
}

float __wrap_train_network_datum(network *net)
{
    count_step(net);
    return __real_train_network_datum(net);
}

void __wrap_save_weights(network *net, char *file)
{
    (void)net;
    (void)file;
}

/* ---- an input ---- */

/* The first line is the command; behind a line "=== NAME" stands that file. */
static const char *const files[] = {"net.cfg",    "train.data", "train.list",
                                    "labels.txt", "image.txt",  "text"};
enum { FILES = sizeof files / sizeof files[0], MOST = 64 };

static void write_file(const char *name, const void *data, size_t size)
{
    FILE *file = fopen(name, "wb");

    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) {
        perror(name);
        _exit(3);
    }
}

/* Where a line "=== NAME" begins, or the end. */
static char *next_file(char *s)
{
    while (strncmp(s, "=== ", 4) && *s) {
        char *end = strchr(s, '\n');
        s = end ? end + 1 : s + strlen(s);
    }
    return s;
}

static void write_files(char *s)
{
    for (int i = 0; i < FILES; i++) {
        remove(files[i]);
    }
    write_file("image.png", png, sizeof png);
    while (*(s = next_file(s))) {
        char *body = strchr(s, '\n'), *end;
        if (!body) {
            return;
        }
        *body++ = '\0';
        end = next_file(body);
        for (int i = 0; i < FILES; i++) {
            if (!strcmp(s + 4, files[i])) {
                write_file(files[i], body, (size_t)(end - body));
            }
        }
        s = end;
    }
}

static int trains(int argc, char **argv)
{
    /* tag train loads 1024 images at a time. */
    static const char *const drivers[] = {"classifier", "detector",  "yolo",      "coco",
                                          "super",      "regressor", "segmenter", "isegmenter"};

    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0] && argc > 2; i++) {
        if (!strcmp(argv[1], drivers[i]) && !strcmp(argv[2], "train")) {
            return 1;
        }
    }
    return 0;
}

void fuzz_training(const uint8_t *input, size_t size)
{
    static char text[16384 + 1], command[16384 + 1], *argv[MOST + 1];
    static struct cmn_options options;
    struct cmn_arguments found;
    int argc = 0;

    memcpy(text, input, size);
    text[size] = '\0';
    for (size_t i = 0; i < size; i++) {
        text[i] = text[i] ? text[i] : ' ';
    }
    snprintf(command, sizeof command, "darknet %.*s", (int)strcspn(text, "\n"), text);
    write_files(text);
    for (char *word = strtok(command, " "); word && argc < MOST; word = strtok(NULL, " ")) {
        if (strcmp(word, "-h") && strcmp(word, "--help")) { /* which end the program with 0 */
            argv[argc++] = word;
        }
    }
    argv[argc] = NULL;
    cmn_options_default(&options);
    if (cmn_arguments_take(&argc, argv, &options, &found)) {
        cmn_reason();
        return;
    }
    if (trains(argc, argv) && !fuzz_refused("net.cfg", "train.data", found.command) &&
        !sigsetjmp(done, 0)) {
        steps = 0;
        is_target = 1;
        darknet_main(argc, argv);
    }
}

/* ---- mutations ---- */

static unsigned state;

static unsigned draw(unsigned n)
{
    state = state * 1664525u + 1013904223u;
    return n ? (unsigned)((uint64_t)(state >> 8) * n >> 24) : 0;
}

/* The beginning of a line drawn from those between `from` and `to`. */
static char *draw_line(char *from, char *to)
{
    char *chosen = from;
    unsigned n = 0;

    for (char *s = from; s < to;) {
        char *end = memchr(s, '\n', (size_t)(to - s));
        if (draw(++n) == 0) {
            chosen = s;
        }
        s = end ? end + 1 : to;
    }
    return chosen;
}

/* Puts `with` in the place of the n bytes at `at`. */
static size_t replace(char *text, size_t size, size_t most, char *at, size_t n, const char *with)
{
    size_t length = strlen(with), behind = size - (size_t)(at - text) - n;

    if (size - n + length > most) {
        return size;
    }
    memmove(at + length, at + n, behind);
    memcpy(at, with, length);
    return size - n + length;
}

/* A value at, in or outside of a range. */
static void draw_value(char *value, size_t bytes, double low, double high, int whole)
{
    static const char *const edges[] = {
        "0",          "1",           "-1",    "2", "nan", "inf",  "1e20", "-1e20", "2147483647",
        "2147483648", "-2147483648", "1e-45", "3", "",    "text", "0.5",  "1e38"};
    unsigned which = draw(8);
    double x = which == 0   ? low
               : which == 1 ? high
               : which == 2 ? low - 1
               : which == 3 ? high + 1
               : which == 4 ? low + (high - low) * draw(1000) / 1000
                            : low + draw(which == 5 ? 4 : 64) * (whole ? 1 : .1);

    if (which == 7) {
        snprintf(value, bytes, "%s", edges[draw(sizeof edges / sizeof edges[0])]);
    } else {
        snprintf(value, bytes, "%.*g", whole ? 17 : 9, whole ? floor(x) : x);
    }
}

static void draw_number(char *value, size_t bytes, const struct cmn_cfg_number *n)
{
    int whole = n->kind == CMN_CFG_WHOLE || n->kind == CMN_CFG_WHOLES;
    size_t used;

    draw_value(value, bytes, n->low, n->high, whole);
    while (n->kind >= CMN_CFG_WHOLES && draw(2) && (used = strlen(value)) + 32 < bytes) {
        value[used++] = ',';
        draw_value(value + used, bytes - used, n->low, n->high, whole);
    }
}

/* The section that a line of the cfg belongs to. */
static void section_of(const char *text, const char *at, char *section, size_t bytes)
{
    for (const char *s = at; s > text; s--) {
        if (s[-1] == '\n' && *s == '[') {
            snprintf(section, bytes, "%.*s", (int)strcspn(s, "\n"), s);
            return;
        }
    }
    snprintf(section, bytes, "[net]");
}

static int rows(void)
{
    int n = 0;

    while (cmn_cfg_number_at(n)) {
        n++;
    }
    return n;
}

/* Another value behind the "=" of a line, or a key more. */
static size_t mutate_number(char *text, size_t size, size_t most)
{
    char *line = draw_line(text, text + size), *end = line + strcspn(line, "\n");
    char *equals = memchr(line, '=', (size_t)(end - line)), section[64], key[64], value[512];
    const struct cmn_cfg_number *number;

    section_of(text, line, section, sizeof section);
    if (equals && line[0] != '=' && draw(3)) {
        snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
        number = cmn_cfg_number_find(section, key);
        if (number) {
            draw_number(value, sizeof value, number);
        } else {
            draw_value(value, sizeof value, 0, 10, 1);
        }
        return replace(text, size, most, equals + 1, (size_t)(end - equals - 1), value);
    }
    if (line[0] != '[') {
        return size;
    }
    for (int tries = 0; tries < 64; tries++) {
        number = cmn_cfg_number_at((int)draw((unsigned)rows()));
        if (cmn_cfg_number_find(section, number->key) == number) {
            int n = snprintf(key, sizeof key, "\n%s=", number->key);
            draw_number(value, sizeof value, number);
            size = replace(text, size, most, end, 0, key);
            return size + (size_t)n > most
                       ? size
                       : replace(text, size, most, end + (end[0] == '\n' ? n : 0), 0, value);
        }
    }
    return size;
}

static size_t mutate_section(char *text, size_t size, size_t most)
{
    static const char *const more[] = {
        "[convolutional]\nfilters=4\nsize=3\npad=1\n",
        "[maxpool]\nsize=2\nstride=2\n",
        "[avgpool]\n",
        "[dropout]\n",
        "[connected]\noutput=4\n",
        "[softmax]\n",
        "[cost]\ntype=sse\n",
        "[batchnorm]\n",
        "[route]\nlayers=-1,-2\n",
        "[shortcut]\nfrom=-2\n",
        "[upsample]\nstride=2\n",
        "[reorg]\nstride=2\n",
        "[local]\nfilters=2\nsize=3\npad=1\n",
        "[crop]\ncrop_width=7\ncrop_height=7\n",
        "[logistic]\n",
        "[activation]\nactivation=tanh\n",
        "[deconvolutional]\nfilters=2\nsize=2\nstride=2\n",
        "[iseg]\nclasses=2\nids=2\n",
        "policy=steps\nsteps=1,2\nscales=.1,.1\n",
        "policy=exp\ngamma=.5\n",
        "policy=poly\n",
        "policy=sigmoid\ngamma=.1\nstep=3\n",
        "policy=random\n",
        "adam=1\n",
        "random=1\n",
    };
    char *line = draw_line(text, text + size);

    return replace(text, size, most, line, 0, more[draw(sizeof more / sizeof more[0])]);
}

static size_t mutate_line(char *text, size_t size, size_t most)
{
    char *line = draw_line(text, text + size), *end = line + strcspn(line, "\n"), copy[256];

    end += end < text + size;
    if (draw(2)) {
        return replace(text, size, most, line, (size_t)(end - line), "");
    }
    snprintf(copy, sizeof copy, "%.*s", (int)(end - line), line);
    return replace(text, size, most, draw_line(text, text + size), 0, copy);
}

/* A word more on the command line. */
static size_t mutate_command(char *text, size_t size, size_t most)
{
    static const char *const words[] = {" -clear",      " -i 0", " -nogpu",          " -gpus 0",
                                        " net.weights", " -cmn", " -data train.data"};
    struct cmn_option_row row;
    char word[160], value[64] = "";
    char *end = text + strcspn(text, "\n");

    snprintf(word, sizeof word, "%s", words[draw(sizeof words / sizeof words[0])]);
    if (draw(2)) {
        cmn_options_row((int)draw((unsigned)cmn_options_count()), &row);
        draw_value(value, sizeof value, 0, 10, 1);
        snprintf(word, sizeof word, " -%s %s", row.key, draw(3) ? row.value : value);
    }
    return replace(text, size, most, end, 0, word);
}

/* Another number among those of a label. */
static size_t mutate_label(char *text, size_t size, size_t most)
{
    char *body = strstr(text, "=== image.txt\n"), value[64], *at, *to;

    if (!body) {
        return size;
    }
    body += strlen("=== image.txt\n");
    to = next_file(body);
    at = draw_line(body, to);
    for (unsigned n = draw(5); n && at < to; n--) {
        at += strcspn(at, " \n");
        at += at < to && *at == ' ';
    }
    draw_value(value, sizeof value, 0, 1, 0);
    return replace(text, size, most, at, strcspn(at, " \n"), value);
}

size_t fuzz_training_mutate(uint8_t *input, size_t size, size_t most, unsigned seed)
{
    static size_t (*const kinds[])(char *, size_t, size_t) = {
        mutate_number, mutate_number, mutate_number,  mutate_section,
        mutate_line,   mutate_line,   mutate_command, mutate_label,
    };
    static char text[65536];

    if (size >= sizeof text || most >= sizeof text) {
        return size;
    }
    memcpy(text, input, size);
    state = seed;
    for (unsigned n = 1 + draw(3); n; n--) {
        text[size] = '\0';
        size = strlen(text);
        size = kinds[draw(sizeof kinds / sizeof kinds[0])](text, size, most);
    }
    memcpy(input, text, size);
    return size;
}
