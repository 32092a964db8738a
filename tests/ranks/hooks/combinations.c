/* Keys that say how ranks exchange, crossed with each other, with Adam and with shapes of nodes:
 * each pair of values that some training accepts is trained once, through Darknet's own calls. A
 * combination is refused alike on all ranks, or leaves the same bits on all of them, with
 * cmn_overlap on as off, and when it resumes from a checkpoint. Keys, words and communicators come
 * from the tables; each refusal is a row of the table of pairs, and no row is of what trains. */
#include "ranks/ranks.h"

#include <cblas.h>
#include <math.h>

#include "cmn.h"
#include "darknet.h"

#include "communicators/communicator.h"
#include "config/pairs.h"
#include "engine/convolution.h"
#include "hooks/job.h"
#include "trainer/nonfinite_policy.h"
#include "trainer/trainer.h"

#include "folder.h"
#include "nets.h"

enum { UPDATES = 6, SAVED = 3, SAMPLES = 400, POISONED = 2 };
enum { FACTORS = 32, VALUES = 16, TRIES = 6, HOPELESS = 40 };

/* ---- what there is to combine ---- */

static struct factor {
    const char *key;
    char value[VALUES][32];
    int values; /* the first one is the default */
    int refused[VALUES], accepted[VALUES];
} factor[FACTORS];
static int factors;
/* The first factors; the others are keys as the table has them. */
enum { SHAPE, ADAM, COMMUNICATOR };

/* Not words, so the table cannot say what to try beside the default; NULL: nothing. */
static const struct {
    const char *key, *value;
} numbers[] = {
    {"cmn_lars", "0.01"},  {"cmn_local_steps", "2"}, {"cmn_epochs", NULL}, {"cmn_validate", NULL},
    {"cmn_patience", "2"}, {"cmn_clip", "0.05"},     {"cmn_ema", "0.9"},
};

/* Variables, and what to try beside none. */
static const char *const variables[][2] = {{"CMN_DEBUG_BUCKET_MB", "0.0005"},
                                           {"CMN_DEBUG_EXCHANGE", "halving, ring"},
                                           {"CMN_DEBUG_INTRA", "mpi"}};

static void add_value(struct factor *f, const char *value)
{
    CHECK_SAYING(f->values < VALUES && strlen(value) < sizeof f->value[0], "%s", f->key);
    snprintf(f->value[f->values++], sizeof f->value[0], "%s", value);
}

static struct factor *add_factor(const char *key, const char *value)
{
    struct factor *f = &factor[factors++];

    CHECK(factors < FACTORS);
    *f = (struct factor){.key = key};
    add_value(f, value);
    return f;
}

static void add_words(struct factor *f, const char *range)
{
    char words[256], *word, *rest = words;

    snprintf(words, sizeof words, "%.*s", (int)strcspn(range, "["), range);
    while ((word = strsep(&rest, ", "))) {
        /* What cmn_mixed=auto trains depends on measured times. */
        int measured = !strcmp(f->key, "cmn_mixed") && !strcmp(word, "auto");
        if (*word && strcmp(word, f->value[0]) && !measured) {
            add_value(f, word);
        }
    }
}

static void add_number(const struct cmn_option_row *row)
{
    size_t i = 0;

    while (i < COUNT(numbers) && strcmp(numbers[i].key, row->key)) {
        i++;
    }
    CHECK_SAYING(i < COUNT(numbers), "%s: say in `numbers` what to try", row->key);
    if (i < COUNT(numbers) && numbers[i].value) {
        add_value(add_factor(row->key, row->value), numbers[i].value);
    }
}

static void find_factors(void)
{
    struct cmn_option_row row;
    struct factor *f;

    factors = 0;
    f = add_factor("nodes", "as they are");
    for (size_t i = 0; i < COUNT(shapes) && top.inter_size == 1; i++) {
        if (shapes[i].size == top.size) {
            add_value(f, shapes[i].name);
        }
    }
    add_value(add_factor("adam", "0"), "1");
    /* auto is one of the others, and not always the same. */
    f = add_factor("cmn_communicator", "flat");
    for (int i = 0; cmn_communicator_at(i); i++) {
        const struct cmn_communicator *c = cmn_communicator_at(i);
        if (c->sums && strcmp(c->name, "flat")) {
            add_value(f, c->name);
        }
    }
    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        if ((strcmp(row.group, "Exchange") && strcmp(row.group, "Batch and schedule") &&
             strcmp(row.key, "cmn_nonfinite")) ||
            !strcmp(row.key, "cmn_balance")) { /* a loader has to follow it: tests/cli/exact.bats */
            continue;
        }
        if (strstr(row.range, " to ")) {
            add_number(&row);
        } else if (strcmp(row.key, "cmn_communicator")) {
            add_words(add_factor(row.key, row.value), row.range);
        }
    }
    for (size_t i = 0; i < COUNT(variables); i++) {
        add_words(add_factor(variables[i][0], ""), variables[i][1]);
    }
}

/* ---- one training ---- */

struct combination {
    int value[FACTORS];
};

static struct cmn_topology nodes[VALUES];             /* by the values of SHAPE */
static const char *const runs[] = {"whole", "other"}; /* its folders */

static const char *value_of(const struct combination *c, const char *key)
{
    for (int i = 0; i < factors; i++) {
        if (!strcmp(factor[i].key, key)) {
            return factor[i].value[c->value[i]];
        }
    }
    fail_msg("no factor %s", key);
    return "";
}

static void describe(const struct combination *c, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < factors && used < bytes; i++) {
        if (c->value[i]) {
            used += (size_t)snprintf(text + used, bytes - used, " %s=%s", factor[i].key,
                                     factor[i].value[c->value[i]]);
        }
    }
}

/* As in_folder(), of a file in the folder of a run. */
static char *in_run(const char *run, const char *file)
{
    char name[300];

    snprintf(name, sizeof name, "%s/%s", run, file);
    return in_folder(name);
}

static void write_cfg(const struct combination *c)
{
    FILE *file = top.rank ? NULL : fopen(in_folder("net.cfg"), "w");

    if (file) {
        fprintf(file,
                "[net]\nbatch=20\nsubdivisions=2\nheight=6\nwidth=6\nchannels=2\nmax_batches=%d\n"
                "learning_rate=0.02\nmomentum=0.9\ndecay=0.001\npolicy=constant\nadam=%s\n"
                "[convolutional]\nfilters=6\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n"
                "[dropout]\nprobability=.2\n"
                "[connected]\noutput=20\nbatch_normalize=1\nactivation=leaky\n"
                "[connected]\noutput=5\nactivation=linear\n[softmax]\n",
                UPDATES, value_of(c, "adam"));
        fclose(file);
    }
    MPI_Barrier(top.world);
}

static void set_options(struct cmn_options *o, const struct combination *c, const char *overlap,
                        int checkpoint)
{
    static const char *const also[][2] = {
        {"cmn_seed", "7"}, {"cmn_report", "quiet"}, {"cmn_validate", "0"}, {"cmn_scatter", "none"}};

    for (int i = COMMUNICATOR; i < factors; i++) {
        if (!strncmp(factor[i].key, "CMN_DEBUG_", 10)) {
            setenv(factor[i].key, factor[i].value[c->value[i]], 1);
        }
    }
    cmn_options_default(o);
    for (size_t i = 0; i < COUNT(also); i++) {
        CHECK(cmn_options_set(o, also[i][0], also[i][1], 0) == 0);
    }
    for (int i = COMMUNICATOR; i < factors; i++) {
        const char *key = factor[i].key, *value = factor[i].value[c->value[i]];
        value = overlap && !strcmp(key, "cmn_overlap") ? overlap : value;
        CHECK_SAYING(!strncmp(key, "CMN_DEBUG_", 10) || cmn_options_set(o, key, value, 0) == 0,
                     "%s", cmn_reason());
    }
    o->scatter = o->exact ? CMN_SCATTER_GLOBAL : o->scatter; /* and takes no other */
    o->checkpoint = checkpoint ? SAVED : 0;
}

/* This rank's images of a step, the same in each run. With skip the last rank brings a NaN now and
 * then. */
static void make_step(const network *net, data *d, int step, int poison)
{
    for (int i = 0; i < d->X.rows; i++) {
        for (int j = 0; j < d->X.cols; j++) {
            unsigned n = (unsigned)(((step * 31 + top.rank) * 17 + i) * 13 + j) * 2654435761U;
            d->X.vals[i][j] = (float)(n >> 16) / 32768 - 1;
        }
        for (int j = 0; j < d->y.cols; j++) {
            d->y.vals[i][j] = j == (step + top.rank + i) % d->y.cols;
        }
    }
    if (poison && (step == 1 || step == SAVED) && top.rank == top.size - 1) {
        d->X.vals[d->X.rows - 1][net->inputs / 2] = NAN;
    }
}

static void train_net(network *net, int poison)
{
    data d = {.shallow = 0};

    d.X = make_matrix(net->batch * net->subdivisions, net->inputs);
    d.y = make_matrix(net->batch * net->subdivisions, (int)cmn_net_truths(cmn_net_of(net)));
    while ((int)get_current_batch(DK_NET(net)) < net->max_batches) {
        make_step(net, &d, (int)get_current_batch(DK_NET(net)), poison);
        train_network(DK_NET(net), d);
    }
    free_data(d);
}

/* Whether what an update changes has the same bits on all ranks. */
static int same_weights(const network *net)
{
    int same = 1;

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        int outputs = l->type == CONVOLUTIONAL ? l->n : l->outputs;
        int n = l->type == CONVOLUTIONAL ? l->nweights : l->outputs * l->inputs;
        if (l->weights && l->biases) {
            same &= same_everywhere(l->weights, (size_t)n * sizeof(float));
            same &= same_everywhere(l->biases, (size_t)outputs * sizeof(float));
            same &= !l->scales || same_everywhere(l->scales, (size_t)outputs * sizeof(float));
        }
    }
    return same;
}

struct outcome {
    int same; /* on all ranks */
    long resumed;
    long skipped; /* steps that were left out for their NaN */
};

static void train_all(const struct combination *c, const char *run, const char *overlap,
                      int checkpoint, struct outcome *out)
{
    char *const cfg = in_folder("net.cfg"), *const weights = in_run(run, "weights");
    char backup[512], *train_argv[] = {"darknet", "regressor", "train"};
    const struct cmn_data_cfg d = {.backup = backup};
    network *net;

    snprintf(backup, sizeof backup, "%s", in_folder(run));
    memset(&cmn_job, 0, sizeof cmn_job);
    cmn_job.topology = nodes[c->value[SHAPE]];
    cmn_job.command = cmn_command_find(3, train_argv);
    cmn_job.on = 1;
    set_options(&cmn_job.options, c, overlap, checkpoint);
    net = cmn_tree_read(cfg);
    cmn_after_load_network(net, cfg);
    cmn_session_data(&cmn_job, &d);
    cmn_trainer_resume(net->cmn);
    cmn_samples_in_memory(SAMPLES);
    train_net(net, !strcmp(value_of(c, "cmn_nonfinite"), "skip"));
    out->same = same_weights(net);
    out->resumed = cmn_job.resumed_steps;
    out->skipped = ((const struct cmn_trainer *)net->cmn)->step.nonfinite->skipped;
    save_weights(DK_NET(net), weights);
    cmn_trainer_flush(net->cmn);
    cmn_tree_free(net);
}

/* Returns why the job refuses that, or NULL. What a refused training had in hand is lost. */
static const char *train(const struct combination *c, const char *run, const char *overlap,
                         int checkpoint, struct outcome *out)
{
    static char line[sizeof check_message];
    const char *volatile refused = fatal_of(train_all(c, run, overlap, checkpoint, out));
    int bad = refused != NULL, any = bad;

    if (refused) {
        snprintf(line, sizeof line, "%s", refused);
    }
    if (cmn_job.communicator) {
        cmn_job.communicator->close(cmn_job.exchange);
        cmn_job.communicator = NULL;
    }
    cmn_job.on = 0;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, top.world);
    CHECK_SAYING(bad == any, "only some ranks refuse: %.500s", bad ? line : "not this one");
    CHECK_SAYING(!any || same_everywhere(line, strlen(line) + 1), "%.800s", line);
    return any ? line : NULL;
}

/* ---- what holds for a combination ---- */

/* Rank 0. Removes what lies in the folder of a run, but for `kept`. */
static void empty(const char *run, const char *kept)
{
    DIR *dir = opendir(in_folder(run));

    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, kept)) {
            unlink(in_run(run, entry->d_name));
        }
    }
    closedir(dir);
}

static const char *const results[] = {"weights", "net_ema.weights"};

/* Rank 0. */
static int same_file(const char *run, const char *other, const char *result)
{
    const char *const name[] = {in_run(run, result), in_run(other, result)};
    static char text[2][1 << 16];
    size_t bytes[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(name[i], "rb");
        if (file) {
            bytes[i] = fread(text[i], 1, sizeof text[i], file);
            fclose(file);
        }
    }
    return bytes[0] > 1000 && bytes[0] == bytes[1] && !memcmp(text[0], text[1], bytes[0]);
}

static int same_files(const struct combination *c, const char *run, const char *other)
{
    return same_file(run, other, results[0]) &&
           (!strcmp(value_of(c, "cmn_ema"), "off") || same_file(run, other, results[1]));
}

/* Whether the table of pairs refuses the keys with each other, or with Adam. */
static int is_in_table(const struct combination *c)
{
    struct cmn_options o;

    set_options(&o, c, NULL, 1);
    return cmn_pairs_check(&o) || (!strcmp(value_of(c, "adam"), "1") &&
                                   cmn_pairs_check_trait(&o, CMN_USES_ADAM, "adam=1 in the cfg"));
}

/* Whether a row of the table says this of what is set. */
static int is_explained(const struct combination *c, const char *line)
{
    const struct cmn_pair *p;
    struct cmn_options o;
    char end[512];

    set_options(&o, c, NULL, 1);
    for (int i = 0; (p = cmn_pairs_at(i)); i++) {
        snprintf(end, sizeof end, ": %s: %s", p->why, p->instead);
        if (cmn_options_holds(&o, p->feature) && (!p->other || cmn_options_holds(&o, p->other)) &&
            strstr(line, " does not go with ") && strstr(line, end)) {
            return 1;
        }
    }
    /* Or it is no pair: that communicator does not run, or does not overlap, on these nodes, which
     * it says itself, or not with a variable, or nothing here has bf16. */
    cmn_options_default(&o);
    return strstr(line, "CMN_DEBUG_") ||
           (strstr(line, "cmn_mixed=bf16: this processor") && !cmn_convolution_use_bf16(0)) ||
           strstr(line, "cmn_overlap=on: communicator ") ||
           cmn_communicator_refuses(cmn_communicator_find(value_of(c, "cmn_communicator")),
                                    &nodes[c->value[SHAPE]], &o);
}

/* Trains it, and holds it against the other overlap and against itself resumed. Returns whether it
 * was accepted. */
static int try_it(const struct combination *c)
{
    const char *overlap = value_of(c, "cmn_overlap"),
               *other = strcmp(overlap, "off") ? "off" : "on";
    struct outcome out = {0};
    char text[700];
    const char *why;

    describe(c, text, sizeof text);
    MPI_Barrier(top.world);
    if (top.rank == 0) {
        empty("whole", "");
        empty("other", "");
    }
    write_cfg(c);
    why = train(c, "whole", NULL, 1, &out);
    if (why) {
        CHECK_SAYING(is_explained(c, why), "no row of the table of pairs says: %.400s:%s", why,
                     text);
        return 0;
    }
    CHECK_SAYING(!is_in_table(c), "trained, against the table of pairs: %s:%s", cmn_reason(), text);
    CHECK_SAYING(out.same, "other weights on another rank:%s", text);
    CHECK_SAYING(out.skipped <= POISONED, "%ld steps left out, %d of which had a NaN:%s",
                 out.skipped, POISONED, text);
    if (!train(c, "other", other, 0, &out)) {
        CHECK_SAYING(top.rank || same_files(c, "whole", "other"),
                     "other bits with cmn_overlap=%s:%s", other, text);
    }
    if (top.rank == 0) {
        for (size_t i = 0; i < COUNT(results); i++) {
            rename(in_run("whole", results[i]), in_run("other", results[i]));
        }
        empty("whole", "net-3.checkpoint");
    }
    MPI_Barrier(top.world);
    why = train(c, "whole", NULL, 1, &out);
    CHECK_SAYING(!why, "does not resume: %s:%s", why ? why : "", text);
    CHECK_SAYING(why || out.resumed == SAVED, "resumed after %ld:%s", out.resumed, text);
    CHECK_SAYING(why || top.rank || same_files(c, "whole", "other"), "other bits when resumed:%s",
                 text);
    return 1;
}

/* ---- all pairs ---- */

static unsigned char covered[FACTORS][VALUES][FACTORS][VALUES];
static uint64_t drawn;

static int draw(int n)
{
    drawn = drawn * 6364136223846793005U + 1442695040888963407U;
    return (int)((drawn >> 33) % (unsigned)n);
}

static int is_hopeless(int f, int v)
{
    return !factor[f].accepted[v] && factor[f].refused[v] >= HOPELESS;
}

static int gain(const struct combination *c, int f, int v, const unsigned char *chosen)
{
    int sum = 0;

    for (int g = 0; g < factors; g++) {
        sum += g != f && chosen[g] && !covered[f][v][g][c->value[g]];
    }
    return sum;
}

/* A combination with these two values. The more often they were refused, the more of the others are
 * the defaults. */
static void complete(struct combination *c, int f, int g, int attempt)
{
    unsigned char chosen[FACTORS] = {0};
    int first = draw(factors);

    chosen[f] = chosen[g] = 1;
    for (int k = 0; k < factors; k++) {
        int h = (first + k) % factors, best = -1, from;
        if (chosen[h]) {
            continue;
        }
        c->value[h] = 0;
        from = draw(factor[h].values);
        if (draw(TRIES) < attempt && h != SHAPE) {
            from = 0;
            best = 1 << 20;
        }
        for (int i = 0; i < factor[h].values; i++) {
            int v = (from + i) % factor[h].values, is = gain(c, h, v, chosen);
            if (is > best && !is_hopeless(h, v)) {
                best = is;
                c->value[h] = v;
            }
        }
        chosen[h] = 1;
    }
}

static int trained, refused, together; /* together: pairs of values that were trained */
static int broken;                     /* on any rank a CHECK has failed */

static void note(const struct combination *c, int accepted)
{
    for (int f = 0; f < factors; f++) {
        factor[f].accepted[c->value[f]] += accepted;
        factor[f].refused[c->value[f]] += !accepted;
        for (int g = 0; g < factors && accepted; g++) {
            unsigned char *is = &covered[f][c->value[f]][g][c->value[g]];
            together += g < f && !*is;
            *is = 1;
        }
    }
}

static void try_pair(int f, int v, int g, int w)
{
    for (int attempt = 0; attempt < TRIES && !covered[f][v][g][w]; attempt++) {
        struct combination c = {.value = {0}};
        int accepted;
        if (broken || is_hopeless(f, v) || is_hopeless(g, w)) {
            return;
        }
        c.value[f] = v;
        c.value[g] = w;
        complete(&c, f, g, attempt);
        accepted = try_it(&c);
        note(&c, accepted);
        trained += accepted;
        refused += !accepted;
        broken = failure[0] != '\0';
        MPI_Allreduce(MPI_IN_PLACE, &broken, 1, MPI_INT, MPI_MAX, top.world);
    }
}

static void open_nodes(void)
{
    int n = 0;

    nodes[n++] = top;
    for (size_t i = 0; i < COUNT(shapes) && top.inter_size == 1; i++) {
        if (shapes[i].size == top.size) {
            cmn_topology_open_as(&nodes[n++], shapes[i].node[top.rank]);
        }
    }
}

/* It syncs at once in memory. */
static void make_folders(void)
{
    if (top.rank == 0) {
        make_folder_in(access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        for (size_t i = 0; i < COUNT(runs); i++) {
            CHECK(mkdir(in_folder(runs[i]), 0700) == 0);
        }
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, top.world);
}

RANK_TEST(pairs)
{
    find_factors();
    make_folders();
    open_nodes();
    for (int f = 0; f < factors; f++) {
        for (int g = 0; g < f; g++) {
            for (int v = 0; v < factor[f].values; v++) {
                for (int w = 0; w < factor[g].values; w++) {
                    try_pair(f, v, g, w);
                }
            }
        }
    }
    if (top.rank == 0) {
        remove_folder();
    }
    for (int i = 1; i < factor[SHAPE].values; i++) {
        cmn_topology_close(&nodes[i]);
    }
    CHECK_SAYING(trained > 20, "%d combinations trained, %d refused", trained, refused);
    if (top.rank == 0) {
        printf("# %d combinations trained, with %d pairs; %d refused\n", trained, together,
               refused);
    }
}

static void use_one_thread(void)
{
    openblas_set_num_threads(1); /* as a job does that has no core to spare */
}

RANK_TESTS(use_one_thread, NULL)
