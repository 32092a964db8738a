/* `darknet cmn doctor DATA CFG`: what is wrong with images, labels and cfg, before a training finds
 * it out, and how much memory the training takes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/cfg_keys.h"
#include "tools/doctor_images.h"
#include "tools/quiet_plan.h"
#include "tools/tool.h"
#include "trainer/feed.h"

static void read_arguments(struct cmn_doctor *d, const struct cmn_tool_call *call)
{
    const char **name[] = {&d->data_name, &d->cfg_name};
    int n = 0;

    for (int i = 1; i < call->argc; i++) {
        const char *word = call->argv[i];
        if (word[0] == '-') {
            cmn_fatal(
                "darknet cmn doctor: unknown argument %s; known are: DATA CFG, -cmn_KEY VALUE, "
                "-nogpu",
                word);
        }
        if (n == 2) {
            cmn_fatal("darknet cmn doctor: %s is too much: it takes a .data file and a cfg", word);
        }
        *name[n++] = word;
    }
    if (n < 2) {
        cmn_fatal("darknet cmn doctor: %s is missing: darknet cmn doctor DATA CFG",
                  n ? "the cfg" : "the .data file");
    }
}

/* ---- memory ---- */

/* Bytes that this process has in memory. */
static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long all, mine = 0;

    if (file && fscanf(file, "%lu %lu", &all, &mine) != 2) {
        mine = 0;
    }
    if (file) {
        fclose(file);
    }
    return (size_t)mine * (size_t)sysconf(_SC_PAGESIZE);
}

/* Darknet takes 512 bytes for each line of a list, whatever its length, and a few more to find it.
 * The image cache finds its images by their paths. */
enum { LINE_BYTES = 570, CACHED_BYTES = 200 };

/* Bytes of a rank, by what takes them. */
struct need {
    double program; /* with MPI and OpenBLAS */
    double weights; /* with gradients, momentum, and what the module keeps of them */
    double layers;  /* outputs, their gradients, workspace */
    double lists;   /* of images */
    double images;  /* that are loaded ahead, on their way to a GPU, or in a loader thread */
    double cache;   /* a rank's part of the node's decoded images */
    double on_gpu;  /* its memory, not the host's: images that are there before their turn */
};

static double total(const struct need *n)
{
    return n->program + n->weights + n->layers + n->lists + n->images + n->cache;
}

/* How often a rank has the network's floats beside weights and gradients. Ranks of a node that share
 * the average and the momentum need less. */
static int copies_of(const struct cmn_doctor *d, const struct cmn_session *s)
{
    const struct cmn_options *o = &s->options;
    int errors = o->compress != CMN_COMPRESS_OFF;
    int local = o->local_steps > 1, adam = cmn_cfg_int(&d->cfg, 0, "adam", 0);
    int apart = errors || o->lars > 0 || o->clip > 0 || o->outlier > 0 ||
                o->nonfinite == CMN_NONFINITE_SKIP;

    /* The momentum lies apart as in optimizers/optimizer.c. */
    return (o->double_buffering != 0) + (!local && (o->double_buffering || (!adam && apart))) +
           local + errors + (o->ema > 0) + (s->topology.rank == 0 && o->checkpoint > 0 ? 2 : 0);
}

/* What a rank with this part of a step needs. The program's part is there already. */
static struct need estimate(const struct cmn_doctor *d, const struct cmn_plan *p,
                            const struct cmn_session *s, const struct cmn_share *share,
                            double program)
{
    double own = (double)share->local * share->micro_batches,
           flat = (double)p->flat * sizeof(float);
    double sample = (double)p->sample * p->grows, micro_batch = share->local * sample;
    double at_once = own < p->threads ? own : p->threads;
    double decoded = d->sums.readable ? (double)d->sums.bytes / (double)d->sums.readable : 0;
    struct need n = {.program = program, .weights = (double)p->weights + flat * copies_of(d, s)};

    n.layers = ((double)p->per_image * share->local + (double)p->workspace) * p->grows;
    /* A batch is trained with while the next one is loaded. A thread has an image as bytes, as
     * floats, and cut to the input's size. */
    n.images = 2 * own * sample + at_once * (decoded * (1 + sizeof(float)) + sample) +
               p->places * micro_batch;
    n.on_gpu = p->places ? (p->places - 1) * micro_batch : 0;
    n.lists = ((double)d->lines[0] + (double)d->lines[1]) * LINE_BYTES;
    n.cache =
        ((double)d->sums.bytes + (double)d->sums.readable * CACHED_BYTES) / s->topology.intra_size;
    return n;
}

/* The smallest number of subdivisions, among those that divide the batch, with which a rank needs
 * at most `room` bytes; 0: none. */
static int fitting_subdivisions(const struct cmn_doctor *d, const struct cmn_plan *p,
                                const struct cmn_session *s, double program, double room)
{
    int images = cmn_cfg_int(&d->cfg, 0, "batch", 1);
    int steps = cmn_cfg_int(&d->cfg, 0, "time_steps", 1);
    struct cmn_share share;
    struct need n;

    for (int i = 1; i <= images; i++) {
        if (images % i || (cmn_feed_divides(s, steps) && images / i < s->topology.size &&
                           s->options.batch != CMN_BATCH_PER_RANK)) {
            continue;
        }
        share = cmn_feed_share(s, images / i, i, steps);
        n = estimate(d, p, s, &share, program);
        if (total(&n) - n.cache <= room) { /* the cache takes what is left */
            return i;
        }
    }
    return 0;
}

static double largest(double x, const struct cmn_topology *t)
{
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, t->world));
    return x;
}

static const char *size_text(double bytes)
{
    static char text[8][32];
    static int i;
    char *s = text[i++ % 8];

    if (bytes >= 1 << 30) {
        snprintf(s, sizeof text[0], "%.1f GiB", bytes / (1 << 30));
    } else {
        snprintf(s, sizeof text[0], "%.0f MiB", bytes / (1 << 20));
    }
    return s;
}

enum { NONE = 1 << 30 };

/* Prints what a rank needs and whether it fits. All ranks know all of it, rank 0 prints. */
static void check_memory(struct cmn_doctor *d, struct cmn_session *s, const struct cmn_plan *p,
                         double program, FILE *out)
{
    const struct cmn_topology *t = d->t;
    const struct cmn_command *command = s->command;
    double left = (double)cmn_memory_free() / t->intra_size, limit = left / 4, room;
    int subdivisions = cmn_cfg_int(&d->cfg, 0, "subdivisions", 1), steps, fits;
    struct cmn_share share;
    struct need n;
    char cure[64];

    MPI_CALL(MPI_Bcast(&d->sums, (int)sizeof d->sums, MPI_BYTE, 0, t->world));
    steps = cmn_cfg_int(&d->cfg, 0, "time_steps", 1);
    s->command = &cmn_tool_training;
    room = -largest(-(left + program), t); /* of the fullest node */
    share =
        cmn_feed_share(s, cmn_cfg_int(&d->cfg, 0, "batch", 1) / subdivisions, subdivisions, steps);
    n = estimate(d, p, s, &share, program);
    if (s->options.cache_mb >= 0) {
        limit = (double)s->options.cache_mb * (1 << 20) / t->intra_size;
    }
    n.cache = n.cache < limit ? n.cache : limit;
    fits = fitting_subdivisions(d, p, s, program, room);
    fits = (int)largest(fits ? fits : NONE, t);
    s->command = command;
    n = (struct need){largest(n.program, t), largest(n.weights, t), largest(n.layers, t), n.lists,
                      largest(n.images, t),  largest(n.cache, t),   largest(n.on_gpu, t)};
    if (out) {
        fprintf(out,
                "memory of a rank: about %s: program %s, weights and gradients %s, layers %s, "
                "lists %s, images being loaded %s, part of the image cache %s\n"
                "  free for each of the %d rank%s of a node: %s; subdivisions=%d",
                size_text(total(&n)), size_text(n.program), size_text(n.weights),
                size_text(n.layers), size_text(n.lists), size_text(n.images), size_text(n.cache),
                t->intra_size, t->intra_size == 1 ? "" : "s", size_text(room), subdivisions);
        if (fits < NONE) {
            fprintf(out, ", and the smallest that fits is %d\n", fits);
        } else {
            fprintf(out, ", and none fits\n");
        }
        if (n.on_gpu > 0) {
            fprintf(out,
                    "  on the GPU, beside what Darknet takes: %s for images and labels that are "
                    "there before their turn\n",
                    size_text(n.on_gpu));
        }
    }
    if (total(&n) - n.cache > room) {
        if (fits < NONE) {
            snprintf(cure, sizeof cure, "raise subdivisions to %d", fits);
        } else {
            snprintf(cure, sizeof cure, "%s",
                     t->intra_size > 1 ? "start fewer ranks on a node" : "lower batch");
        }
        cmn_doctor_add(d, CMN_NO_ROOM, 0, "%s: a rank needs about %s and has %s: %s", d->cfg_name,
                       size_text(total(&n) - n.cache), size_text(room), cure);
    }
}

/* ---- the network ---- */

static void check_keys(struct cmn_doctor *d)
{
    for (int i = 0; i < d->cfg.lines && d->t->rank == 0; i++) {
        const struct cmn_cfg_line *l = &d->cfg.each[i];
        if (l->key && cmn_cfg_key_elsewhere(l->key)) {
            cmn_doctor_add(d, CMN_FOREIGN_KEY, l->line, "%s:%d: %s=%.80s", d->cfg_name, l->line,
                           l->key, l->value);
        }
    }
    for (int i = 0; cmn_cfg_keys_at(i) && d->t->rank == 0; i++) {
        cmn_doctor_add(d, CMN_UNUSED_KEY, i, "%s", cmn_cfg_keys_at(i));
    }
}

/* Whether Darknet would build this network, as far as the doctor has seen. */
static int can_be_built(const struct cmn_doctor *d)
{
    long bad = d->problems.count[CMN_BAD_LINE] + d->problems.count[CMN_BAD_NUMBER] +
               d->problems.count[CMN_BAD_FILTERS] + d->problems.count[CMN_BAD_ANCHORS];

    MPI_CALL(MPI_Bcast(&bad, 1, MPI_LONG, 0, d->t->world));
    return !bad;
}

static void check_network(struct cmn_doctor *d, struct cmn_session *s, double program, FILE *out)
{
    struct cmn_plan plan;

    if (!can_be_built(d)) {
        if (out) {
            fprintf(out,
                    "memory and unknown keys: not looked at, as Darknet would refuse the cfg\n");
        }
        return;
    }
    cmn_status_compute("reading the cfg");
    plan = cmn_quiet_plan(s, d->cfg_name);
    if (d->task == CMN_DOCTOR_CLASSES && plan.outputs != d->classes) {
        const struct cmn_cfg_line *l = cmn_cfg_find(&d->data, -1, "classes");
        if (l) {
            cmn_doctor_add(d, CMN_BAD_OUTPUTS, 0,
                           "%s:%d: classes=%d, and the network of %s has %d outputs", d->data_name,
                           l->line, d->classes, d->cfg_name, plan.outputs);
        } else {
            cmn_doctor_add(d, CMN_BAD_OUTPUTS, 0,
                           "%s: without classes= Darknet takes %d, and the network of %s has %d "
                           "outputs",
                           d->data_name, d->classes, d->cfg_name, plan.outputs);
        }
    }
    check_memory(d, s, &plan, program, out);
}

/* ---- the report ---- */

static void print_lists(const struct cmn_doctor *d, FILE *out)
{
    static const char *const task[] = {"images", "a classifier", "a detector"};
    const struct cmn_doctor_sums *s = &d->sums;

    fprintf(out, "%s and %s: %s, classes=%d\n", d->data_name, d->cfg_name, task[d->task],
            d->classes);
    for (int i = 0; i < 2; i++) {
        if (d->list_name[i]) {
            fprintf(out, "%s %s: %d image%s\n", i ? "valid" : "train", d->list_name[i], d->lines[i],
                    d->lines[i] == 1 ? "" : "s");
        }
    }
    fprintf(out, "%ld different image%s, %ld of them readable", s->files, s->files == 1 ? "" : "s",
            s->readable);
    if (s->readable) {
        fprintf(out, ", %lld x %lld pixels on average", s->width / s->readable,
                s->height / s->readable);
    }
    if (d->task == CMN_DOCTOR_BOXES) {
        fprintf(out, "; %ld label file%s with %ld box%s", s->labels, s->labels == 1 ? "" : "s",
                s->boxes, s->boxes == 1 ? "" : "es");
    }
    fputc('\n', out);
}

static void print_end(const struct cmn_doctor *d, FILE *out)
{
    long faults = cmn_problems_faults(&d->problems), notes = cmn_problems_notes(&d->problems);

    if (!faults) {
        fprintf(out, "doctor: nothing is wrong%s\n", notes ? "; the notes are worth a look" : "");
    } else {
        fprintf(out, "doctor: %ld fault%s, %ld note%s\n", faults, faults == 1 ? "" : "s", notes,
                notes == 1 ? "" : "s");
    }
}

void cmn_tool_doctor(struct cmn_tool_call *call)
{
    struct cmn_session *s = call->session;
    struct cmn_doctor *d = cmn_calloc(1, sizeof *d);
    FILE *out = s->topology.rank == 0 ? stdout : NULL;
    double program;
    long faults;

    d->t = &s->topology;
    read_arguments(d, call);
    program = (double)resident();
    cmn_doctor_files(d);
    cmn_status_compute("looking at images");
    cmn_doctor_images(d);
    cmn_problems_gather(&d->problems, d->t);
    if (out) {
        print_lists(d, out);
        cmn_problems_print(&d->problems, 0, CMN_LAST_OF_FILES, out);
        fflush(out); /* Darknet ends the job where it refuses the cfg */
    }
    /* Rank 0 alone adds problems from here on. */
    check_network(d, s, program, out);
    check_keys(d);
    faults = cmn_problems_faults(&d->problems);
    if (out) {
        cmn_problems_print(&d->problems, CMN_LAST_OF_FILES + 1, CMN_PROBLEM_KINDS - 1, out);
        print_end(d, out);
    }
    MPI_CALL(MPI_Bcast(&faults, 1, MPI_LONG, 0, d->t->world));
    call->status = faults ? 1 : 0;
    free(d);
}
