/* Targets that make a network. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "parser.h"

#include "config/cfg_check.h"
#include "config/cfg_numbers.h"

/* A network that is taken is used as well, when its few values make that quick: on zeros, and
 * trained for a step. */
static void use(network *net)
{
    double work = 0;

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        work += (double)l->workspace_size / sizeof(float) * (l->n + 1) +
                (double)l->outputs * (l->inputs + 1) + (double)l->outputs * l->size * l->size;
    }
    if (work * net->batch > 1e6) {
        return;
    }
    if (net->layers[net->n - 1].type !=
        ISEG) { /* without a truth it is for `isegmenter test` only */
        network_predict(net, net->input);
    }
    for (int i = 0; i < net->n; i++) {
        if (net->layers[i].cost) {
            net->train = 1;
            train_network_datum(net);
            return;
        }
    }
}

static void count(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    (void)line;
    (void)text;
    *(int *)to |= fault < CMN_CFG_UNUSED_KEY;
}

static int parse_file(const char *name, struct cmn_cfg_file *to, enum cmn_cfg_blanks blanks)
{
    FILE *file = name ? fopen(name, "r") : NULL;

    *to = (struct cmn_cfg_file){0};
    if (file) {
        cmn_cfg_parse(to, file, blanks);
        fclose(file);
    }
    return file != NULL;
}

/* Darknet gets clean copies, as with -cmn. */
static void write_clean(const char *name, const struct cmn_cfg_file *from)
{
    FILE *file = fopen(name, "w");

    if (file) {
        cmn_cfg_print(from, file);
        fclose(file);
    }
}

/* Cleans a list of the .data file. Returns whether a training refuses it. */
static int refuses_list(const char *name, int images)
{
    FILE *file = fopen(name, "r");
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    long left;

    if (!file) {
        return 0; /* Darknet says so */
    }
    n = getdelim(&text, &room, EOF, file);
    fclose(file);
    left = n > 0 ? cmn_list_clean(text, (size_t)n, images) : -1;
    if (left >= 0 && (file = fopen(name, "w"))) {
        fwrite(text, 1, (size_t)left, file);
        fclose(file);
    }
    free(text);
    return left < 0;
}

/* Returns whether a training refuses the labels of a classifier: too few, or an empty one. */
static int refuses_labels(const char *name, int classes)
{
    FILE *file = fopen(name, "r");
    char *line = NULL;
    size_t room = 0;
    int n = 0;

    while (file && n < classes && getline(&line, &room, file) > 1) {
        n++;
    }
    if (file) {
        fclose(file);
    }
    free(line);
    return file && n < classes;
}

static int refuses_lists(const struct cmn_cfg_file *data, const struct cmn_command *command)
{
    const char *labels = cmn_cfg_text(data, -1, "labels", "data/labels.list");
    int refused = refuses_list(cmn_cfg_text(data, -1, "train", "data/train.list"), 1);

    if (command && command->answer == CMN_CLASSES && !cmn_cfg_int(data, -1, "tag", 0)) {
        refused |= refuses_list(labels, 0);
        refused |= refuses_labels(labels, cmn_cfg_int(data, -1, "classes", 2));
    }
    return refused;
}

int fuzz_refused(const char *name, const char *data_name, const struct cmn_command *command)
{
    const struct cmn_cfg_listener listener = {count, &(int){0}};
    struct cmn_cfg_file cfg, data;
    struct cmn_cfg_question q = {.name = name, .data_name = data_name, .cfg = &cfg, .trains = 1};

    parse_file(name, &cfg, CMN_CFG_BLANKS_GO);
    q.data = parse_file(data_name, &data, CMN_CFG_BLANKS_STAY) ? &data : NULL;
    if (command) {
        q.driver = command->driver;
        q.answer = command->answer;
    }
    if (q.data) {
        cmn_data_check(data_name, &data, &listener);
    }
    cmn_cfg_check(&q, &listener);
    write_clean(name, &cfg);
    if (q.data) {
        write_clean(data_name, &data);
        *(int *)listener.to |= refuses_lists(&data, command);
    }
    cmn_cfg_free(&cfg);
    cmn_cfg_free(&data);
    return *(int *)listener.to;
}

void fuzz_cfg(const uint8_t *data, size_t size)
{
    char *name = fuzz_file(0, data, size);
    network *net;

    if (fuzz_refused(name, NULL, NULL)) {
        return;
    }
    net = parse_network_cfg(name);
    use(net);
    free_network(net);
}

static const char *const nets[] = {
    "[net]\nbatch=2\nheight=8\nwidth=8\nchannels=3\n"
    "[convolutional]\nfilters=4\nsize=3\npad=1\nstride=1\nbatch_normalize=1\nactivation=leaky\n"
    "[convolutional]\nfilters=4\nsize=1\ngroups=2\nflipped=1\nactivation=relu\n"
    "[deconvolutional]\nfilters=2\nsize=2\nstride=2\n[batchnorm]\n[maxpool]\nsize=2\nstride=2\n"
    "[local]\nfilters=2\nsize=3\npad=1\nstride=1\n[connected]\noutput=5\nbatch_normalize=1\n["
    "softmax]\n",
    "[net]\nbatch=4\nheight=4\nwidth=4\nchannels=2\n"
    "[convolutional]\nfilters=3\nsize=1\nnumload=2\n[connected]\noutput="
    "3\ndontloadscales=1\n"
    "batch_normalize=1\n[connected]\noutput=2\ndontload=1\n[softmax]\n",
};

enum { NETS = sizeof nets / sizeof nets[0] };

/* The first byte chooses the network. */
void fuzz_weights(const uint8_t *data, size_t size)
{
    const char *cfg;
    network *net;

    if (size < 1) {
        return;
    }
    cfg = nets[data[0] % NETS];
    net = parse_network_cfg(fuzz_file(0, cfg, strlen(cfg)));
    load_weights(net, fuzz_file(1, data + 1, size - 1));
    use(net);
    free_network(net);
}
