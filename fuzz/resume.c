/* The whole resume of a training from a checkpoint that somebody has made by hand: checksums are
 * right, and what they cover is not. A real checkpoint of one of some tiny trainings gets values,
 * members and bytes of tensors from the input; then the training resumes and makes two steps. */
#include "fuzz.h"

#include <cjson/cJSON.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "darknet.h"

#include "base/log.h"
#include "checkpoint/reader.h"
#include "cmn.h"
#include "communicators/communicator.h"
#include "engine/darknet_net.h"
#include "parser.h"
#include "trainer/trainer.h"

/* ---- the trainings ---- */

#define NET "[net]\nbatch=4\nsubdivisions=2\nheight=8\nwidth=8\nchannels=1\nmax_batches=99\n"
#define CONV                                                                                      \
    "[convolutional]\nfilters=2\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n[dropout]\n" \
    "[connected]\noutput=2\nactivation=relu\n[softmax]\n"
#define YOLO                                                                                 \
    "[maxpool]\nsize=32\nstride=32\n[convolutional]\nfilters=6\nsize=1\nactivation=linear\n" \
    "[yolo]\nclasses=1\nnum=1\nanchors=9,9\nrandom=1\nmax=3\n"

static const struct training {
    const char *driver, *cfg;
    const char *key[2][2];
    int ranks; /* that seem to have written the checkpoint */
} trainings[] = {
    {"classifier", NET CONV, {{"cmn_communicator", "naive"}}, 1},
    {"classifier", NET CONV, {{"cmn_double_buffering", "on"}}, 1},
    {"classifier", NET CONV, {{"cmn_local_steps", "3"}}, 1},
    {"classifier", NET CONV, {{"cmn_local_steps", "3"}, {"cmn_double_buffering", "on"}}, 1},
    {"classifier", NET CONV, {{"cmn_lars", "0.01"}}, 1},
    {"classifier", NET "adam=1\n" CONV, {{"cmn_batch", "per_rank"}}, 1},
    {"classifier", NET CONV, {{"cmn_communicator", "naive"}}, 2},
    {"classifier", NET CONV, {{"cmn_local_steps", "3"}}, 2},
    {"detector",
     "[net]\nbatch=1\nheight=32\nwidth=32\nchannels=1\nmax_batches=99\n" YOLO,
     {{"cmn_communicator", "flat"}},
     1},
};
enum { TRAININGS = sizeof trainings / sizeof trainings[0], SAMPLES = 50 };

/* A checkpoint of each, and what a training of it begins with. */
static struct base {
    struct cmn_session session;
    unsigned char *weights, *data; /* of the file's begin and end */
    size_t weight_bytes, data_bytes;
    cJSON *header;
} base[TRAININGS];

static int first_free; /* descriptors from here on belong to one input */

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *out = fopen(path, "wb");

    if (!out || fwrite(text, 1, n, out) != n || fclose(out)) {
        err(1, "%s", path);
    }
}

extern const struct cmn_extension cmn_checkpoint_extension;

/* The training begins, or resumes, and makes two steps. */
static network *start(const struct training *t, struct cmn_session *s)
{
    char cfg[CMN_TEXT + 32];
    struct cmn_trainer *trainer;
    network *net;
    FILE *list;

    snprintf(cfg, sizeof cfg, "%s/x.cfg", s->backup);
    write_file(cfg, t->cfg, strlen(t->cfg));
    net = parse_network_cfg(cfg);
    s->train_images = SAMPLES;
    trainer = cmn_trainer_open(s, cmn_net_of(net), net->batch, net->subdivisions);
    net->cmn = trainer;
    cmn_trainer_attach(trainer, cmn_net_of(net), cfg);
    list = fopen(fuzz_file(1, "a\n", 2), "r");
    cmn_trainer_list(trainer, list);
    fclose(list);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < net->subdivisions; k++) {
            train_network_datum(net);
        }
        cmn_step_after_batch(&trainer->step, 0);
    }
    cmn_checkpoint_extension.after_report(NULL, &trainer->step);
    return net;
}

/* ---- real checkpoints ---- */

/* Of a tensor behind the header; one with "at" has none there. */
static size_t bytes_behind(const cJSON *tensor)
{
    return cJSON_GetObjectItem(tensor, "at")
               ? 0
               : cmn_aligned((uint64_t)cJSON_GetObjectItem(tensor, "bytes")->valuedouble);
}

/* What rank 0 has, the second rank has, too. */
static void add_rank(cJSON *training, cJSON *list, struct base *b, const unsigned char *data)
{
    size_t at = 0, to = 0;
    int n = cJSON_GetArraySize(list);

    cJSON_ReplaceItemInObject(training, "ranks", cJSON_CreateString("2"));
    b->data = malloc(2 * b->data_bytes + CMN_ALIGN);
    for (int i = 0; i < n; i++) {
        cJSON *tensor = cJSON_GetArrayItem(list, i);
        size_t bytes = bytes_behind(tensor);
        memcpy(b->data + to, data + at, bytes);
        to += bytes;
        at += bytes;
    }
    for (int i = 0, from = 0; i < n; i++) {
        cJSON *tensor = cJSON_GetArrayItem(list, i), *other;
        size_t bytes = bytes_behind(tensor);
        if (cJSON_GetObjectItem(tensor, "rank")) {
            other = cJSON_Duplicate(tensor, 1);
            cJSON_SetNumberValue(cJSON_GetObjectItem(other, "rank"), 1);
            cJSON_AddItemToArray(list, other);
            memcpy(b->data + to, data + from, bytes);
            to += bytes;
        }
        from += (int)bytes;
    }
    b->data_bytes = to;
}

static void keep(const struct training *t, struct base *b)
{
    char path[CMN_TEXT + 32];
    struct cmn_checkpoint_file *f;
    unsigned char *bytes, *data;
    struct cmn_mark mark;
    const unsigned char *at;
    size_t n;
    FILE *file;

    snprintf(path, sizeof path, "%s/x-2.checkpoint", b->session.backup);
    f = cmn_checkpoint_read(path);
    if (!f) {
        errx(1, "no checkpoint to begin with: %s", cmn_reason());
    }
    n = f->n;
    b->weight_bytes = f->mark.weights;
    cmn_checkpoint_free(f);
    bytes = malloc(n);
    file = fopen(path, "rb");
    if (!file || fread(bytes, 1, n, file) != n) {
        err(1, "%s", path);
    }
    fclose(file);
    at = bytes + b->weight_bytes;
    if (cmn_mark_read(&mark, at)) {
        errx(1, "%s: no mark", path);
    }
    b->weights = malloc(b->weight_bytes);
    memcpy(b->weights, bytes, b->weight_bytes);
    b->header = cJSON_ParseWithLength((const char *)at + CMN_MARK, mark.header);
    data = bytes + b->weight_bytes + CMN_MARK + mark.header;
    b->data_bytes = n - (size_t)(data - bytes);
    if (t->ranks == 2) {
        add_rank(cJSON_GetObjectItem(b->header, "training"),
                 cJSON_GetObjectItem(b->header, "tensors"), b, data);
    } else {
        b->data = malloc(b->data_bytes);
        memcpy(b->data, data, b->data_bytes);
    }
    free(bytes);
}

static void open_session(const struct training *t, struct cmn_session *s)
{
    char program[] = "darknet", driver[16], verb[] = "train", x[] = "x";
    char *words[] = {program, driver, verb, x, x};

    snprintf(driver, sizeof driver, "%s", t->driver);
    s->on = 1;
    s->command = cmn_command_find(5, words);
    cmn_options_default(&s->options);
    cmn_topology_open(&s->topology);
    s->options.checkpoint = 2;
    s->options.verify = 1;
    s->options.seed = (long)(s->seed = 7);
    s->options.report = CMN_REPORT_QUIET;
    for (int i = 0; i < 2 && t->key[i][0]; i++) {
        if (cmn_options_set(&s->options, t->key[i][0], t->key[i][1], 1)) {
            errx(1, "%s", cmn_reason());
        }
    }
    s->communicator = cmn_communicator_choose(&s->topology, &s->options, &s->communicator_why);
    if (!s->communicator ||
        s->communicator->open(&s->exchange, s->communicator, &s->topology, &s->options)) {
        errx(1, "%s", cmn_reason());
    }
    s->communicator_why = "as asked";
}

/* Once for each training. What it takes stays. */
static void set_up(const struct training *t, struct base *b)
{
    cJSON_Hooks memory = {malloc, free};
    struct cmn_session s;
    int provided;

    if (b->header) {
        return;
    }
    cJSON_InitHooks(&memory);
    MPI_Initialized(&provided);
    if (!provided) {
        setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    }
    open_session(t, &b->session);
    snprintf(b->session.backup, CMN_TEXT, "%s", fuzz_folder());
    s = b->session;
    free_network(start(t, &s));
    keep(t, b);
    fuzz_folder_end();
    b->session.options.checkpoint = 1000000000; /* none is due in what resumes */
    for (int i = 0; i < FUZZ_FILES; i++) {
        fuzz_file(i, "", 0);
    }
    first_free = dup(0);
    close(first_free);
    fuzz_threads_are_usual();
    if (fuzz_memory_keep) {
        fuzz_memory_keep();
    }
}

/* ---- what the input changes ---- */

struct input {
    const uint8_t *at, *end;
};

static unsigned next(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static const char *const texts[] = {
    "1e999",
    "-1e999",
    "1e308",
    "-1e308",
    "1e20",
    "-1e20",
    "1e-320",
    "0.5",
    "-0.5",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "1e15",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"nan\"",
    "\"-1\"",
    "\"1e9\"",
    "\"99999999999999999999\"",
    "\" 1\"",
    "\"2\"",
    "\"0\"",
    "\"2147483647\"",
    "\"2147483648\"",
    "\"9007199254740992\"",
    "\"1000000\"",
    "\"%n%s\"",
    "nan",
    "448",
    "608",
};
enum { TEXTS = sizeof texts / sizeof texts[0] };

/* Member number *n of the tree, in its order; NULL when there are fewer. */
static cJSON *find(cJSON *tree, unsigned *n, cJSON **parent)
{
    cJSON *item, *found;

    cJSON_ArrayForEach(item, tree)
    {
        if (!(*n)--) {
            *parent = tree;
            return item;
        }
        found = find(item, n, parent);
        if (found) {
            return found;
        }
    }
    return NULL;
}

static cJSON *new_value(struct input *in)
{
    char text[40];
    double number;
    unsigned n;

    switch (next(in) % 4) {
    case 0:
        return cJSON_CreateRaw(texts[next(in) % TEXTS]);
    case 1:
        for (size_t i = 0; i < sizeof number; i++) {
            ((unsigned char *)&number)[i] = (unsigned char)next(in);
        }
        return cJSON_CreateNumber(number);
    case 2:
        return cJSON_CreateNumber(next(in));
    default:
        n = next(in) % (unsigned)sizeof text;
        for (unsigned i = 0; i < n; i++) {
            text[i] = (char)next(in);
        }
        text[n] = '\0';
        return cJSON_CreateString(text);
    }
}

static void change_header(struct input *in, cJSON *header)
{
    unsigned n = next(in) + 256 * (next(in) % 4), how = next(in) % 8;
    cJSON *parent = NULL, *item = find(header, &n, &parent), *value;

    if (!item) {
        return;
    }
    if (how == 7) {
        cJSON_Delete(cJSON_DetachItemViaPointer(parent, item));
    } else if (how == 6) {
        cJSON *copy = cJSON_Duplicate(item, 1);
        if (item->string) {
            cJSON_AddItemToObject(parent, item->string, copy);
        } else {
            cJSON_AddItemToArray(parent, copy);
        }
    } else {
        value = new_value(in);
        if (item->string) {
            char name[64];
            snprintf(name, sizeof name, "%s", item->string);
            cJSON_ReplaceItemInObjectCaseSensitive(parent, name, value);
        } else {
            cJSON_ReplaceItemViaPointer(parent, item, value);
        }
    }
}

static void change_bytes(struct input *in, unsigned char *data, size_t bytes)
{
    static const uint64_t special[] = {0,
                                       1,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       UINT64_C(0x8000000000000000),
                                       UINT64_C(0x7fc000007fc00000), /* NaN */
                                       UINT64_C(0x7ff8000000000000),
                                       UINT64_C(0x7f8000007f800000), /* Inf */
                                       UINT64_C(0x7ff0000000000000),
                                       UINT64_C(0x7f7fffff7f7fffff),
                                       UINT64_C(0x7fefffffffffffff),
                                       UINT64_C(0x0000000100000001)};
    size_t at = next(in) | next(in) << 8;
    uint64_t value = special[next(in) % (sizeof special / sizeof special[0])];

    at = at * 8 % (bytes ? bytes : 1);
    if (at + sizeof value <= bytes) {
        memcpy(data + at, &value, sizeof value);
    }
}

/* ---- a file of it ---- */

static void set_check(cJSON *object, const char *name, const void *bytes, size_t n)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)cmn_checksum(bytes, n));
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    cJSON_AddStringToObject(object, name, text);
}

/* As far as the tensors' lengths lead somewhere. `weights` and `data`: the file's begin and end. */
static void set_checks(cJSON *header, const struct base *b, const unsigned char *weights,
                       const unsigned char *data)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(header, "tensors"), *item;
    size_t at = 0;

    set_check(header, "weights", weights, b->weight_bytes);
    for (item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next) {
        const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(item, "bytes");
        double n = cJSON_IsNumber(bytes) ? bytes->valuedouble : -1;
        if (cJSON_GetObjectItemCaseSensitive(item, "at")) {
            continue;
        }
        if (!cJSON_IsObject(item) || !(n >= 0 && n <= (double)(b->data_bytes - at))) {
            return;
        }
        set_check(item, "xxh3", data + at, cmn_aligned((uint64_t)n));
        at += cmn_aligned((uint64_t)n);
    }
}

static void write_checkpoint(const struct base *b, cJSON *header, const unsigned char *weights,
                             const unsigned char *data, const char *folder)
{
    char path[CMN_TEXT + 32], *text = cJSON_PrintUnformatted(header), blanks[CMN_ALIGN];
    struct cmn_mark mark = {.version = CMN_CHECKPOINT_VERSION, .weights = b->weight_bytes};
    unsigned char bytes[CMN_MARK];
    size_t n = text ? strlen(text) : 0;
    FILE *out;

    snprintf(path, sizeof path, "%s/x-2.checkpoint", folder);
    out = text ? fopen(path, "wb") : NULL;
    if (!out) {
        err(1, "%s", path);
    }
    memset(blanks, ' ', sizeof blanks);
    mark.header = cmn_aligned(mark.weights + CMN_MARK + n) - mark.weights - CMN_MARK;
    mark.file = mark.weights + CMN_MARK + mark.header + b->data_bytes;
    text = realloc(text, mark.header + 1);
    memset(text + n, ' ', mark.header - n);
    mark.header_check = cmn_checksum(text, mark.header);
    cmn_mark_write(&mark, bytes);
    fwrite(weights, 1, b->weight_bytes, out);
    fwrite(bytes, 1, sizeof bytes, out);
    fwrite(text, 1, mark.header, out);
    fwrite(data, 1, b->data_bytes, out);
    fclose(out);
    free(text);
}

void fuzz_resume(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    const struct training *t;
    static struct cmn_session s;
    const struct base *b;
    unsigned char *weights, *tensors; /* one behind the other */
    cJSON *header;
    unsigned which;

    if (first_free) {
        close_range((unsigned)first_free, ~0u, 0); /* of an input that was refused */
    }
    which = next(&in) % TRAININGS;
    t = &trainings[which];
    b = &base[which];
    set_up(t, &base[which]);
    header = cJSON_Duplicate(b->header, 1);
    weights = malloc(b->weight_bytes + b->data_bytes + 1);
    tensors = weights + b->weight_bytes;
    memcpy(weights, b->weights, b->weight_bytes);
    memcpy(tensors, b->data, b->data_bytes);
    while (in.at < in.end) {
        if (next(&in) % 4) {
            change_header(&in, header);
        } else {
            change_bytes(&in, weights, b->weight_bytes + b->data_bytes);
        }
    }
    s = b->session;
    snprintf(s.backup, CMN_TEXT, "%s", fuzz_folder());
    set_checks(header, b, weights, tensors);
    write_checkpoint(b, header, weights, tensors, s.backup);
    free(weights);
    cJSON_Delete(header);
    free_network(start(t, &s));
}
