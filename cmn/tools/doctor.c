/* `darknet cmn doctor DATA CFG`: prints what is wrong with images, labels and cfg before a training
 * fails because of it, and how much memory the training takes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "base/status.h"
#include "tools/doctor_images.h"
#include "tools/tool.h"
#include "trainer/forecast.h"

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

static void print_memory(const struct cmn_memory_answer *a, const struct cmn_topology *t,
                         int subdivisions, FILE *out)
{
    const struct cmn_memory_need *n = &a->need;

    fprintf(out,
            "memory of a rank: about %s: program %s, weights and gradients %s, layers %s, "
            "lists %s, images being loaded %s, part of the image cache %s\n"
            "  free for each of the %d rank%s of a node: %s; subdivisions=%d",
            cmn_memory_text(a->all + n->cache), cmn_memory_text(n->program),
            cmn_memory_text(n->weights), cmn_memory_text(n->layers), cmn_memory_text(n->lists),
            cmn_memory_text(n->images), cmn_memory_text(n->cache), t->intra_size,
            t->intra_size == 1 ? "" : "s", cmn_memory_text(a->room), subdivisions);
    if (a->fits) {
        fprintf(out, ", and the smallest that fits is %d\n", a->fits);
    } else {
        fprintf(out, ", and none fits\n");
    }
    if (n->on_gpu > 0) {
        fprintf(out,
                "  on the GPU, beside what Darknet takes: %s for images and labels that are "
                "there before their turn\n",
                cmn_memory_text(n->on_gpu));
    }
}

/* Collective. Prints the memory that a rank needs, and adds a problem if it does not fit. */
static void check_memory(struct cmn_doctor *d, const struct cmn_session *s,
                         const struct cmn_forecast *f, double program, FILE *out)
{
    struct cmn_memory_question q = {
        .session = s,
        .plan = &f->plan,
        .optimizer = &f->optimizer,
        .cfg = d->cfg_name,
        .batch = cmn_cfg_int(&d->cfg, 0, "batch", 1),
        .subdivisions = cmn_cfg_int(&d->cfg, 0, "subdivisions", 1),
        .program = program,
        .lines = (double)d->lines[0] + (double)d->lines[1],
    };
    struct cmn_memory_answer a;

    MPI_CALL(MPI_Bcast(&d->sums, (int)sizeof d->sums, MPI_BYTE, 0, d->t->world));
    q.images = (double)d->sums.readable;
    q.image_bytes = (double)d->sums.bytes;
    a = cmn_forecast_memory(&q);
    if (out) {
        print_memory(&a, d->t, q.subdivisions, out);
    }
    if (a.fault[0]) {
        cmn_doctor_add(d, CMN_NO_ROOM, 0, "%s", a.fault);
    }
}

/* ---- the network ---- */

/* Collective. Returns whether Darknet would build this network, as far as the doctor knows: Darknet
 * ends the process if it refuses a cfg. */
static int can_be_built(const struct cmn_doctor *d)
{
    const long *n = d->problems.count;
    long bad = n[CMN_BAD_LINE] + n[CMN_BAD_NUMBER] + n[CMN_BAD_WORD] + n[CMN_BAD_LAYER] +
               n[CMN_BAD_FILTERS] + n[CMN_BAD_ANCHORS] + n[CMN_REFUSED_LAYER];

    MPI_CALL(MPI_Bcast(&bad, 1, MPI_LONG, 0, d->t->world));
    return !bad;
}

static void check_network(struct cmn_doctor *d, struct cmn_session *s, double program, FILE *out)
{
    struct cmn_forecast f;

    if (!can_be_built(d)) {
        if (out) {
            fprintf(out, "memory: not looked at, as a training would refuse the cfg\n");
        }
        return;
    }
    cmn_status_compute("reading the cfg");
    /* If keys contradict each other or the network, this ends the job with the same message as a
     * training. */
    f = cmn_forecast_cfg(s, d->cfg_name);
    check_memory(d, s, &f, program, out);
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
    fprintf(out, "%lld different image%s, %lld of them readable", s->files,
            s->files == 1 ? "" : "s", s->readable);
    if (s->readable) {
        fprintf(out, ", %lld x %lld pixels on average", s->width / s->readable,
                s->height / s->readable);
    }
    if (d->task == CMN_DOCTOR_BOXES) {
        fprintf(out, "; %lld label file%s with %lld box%s", s->labels, s->labels == 1 ? "" : "s",
                s->boxes, s->boxes == 1 ? "" : "es");
    }
    fputc('\n', out);
}

static void print_end(const struct cmn_doctor *d, FILE *out)
{
    long faults = cmn_problems_count(&d->problems, 0);
    long notes = cmn_problems_count(&d->problems, 1);

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
    program = cmn_forecast_resident();
    cmn_status_compute("reading the .data file and lists");
    cmn_doctor_files(d);
    cmn_status_compute("looking at images");
    cmn_doctor_images(d);
    cmn_problems_gather(&d->problems, d->t);
    if (out) {
        print_lists(d, out);
        cmn_problems_print(&d->problems, 0, CMN_LAST_OF_FILES, out);
        fflush(out); /* Darknet ends the job if it refuses the cfg */
    }
    /* From here on only rank 0 adds problems. */
    check_network(d, s, program, out);
    faults = cmn_problems_count(&d->problems, 0);
    if (out) {
        cmn_problems_print(&d->problems, CMN_LAST_OF_FILES + 1, CMN_PROBLEM_KINDS - 1, out);
        print_end(d, out);
    }
    MPI_CALL(MPI_Bcast(&faults, 1, MPI_LONG, 0, d->t->world));
    call->status = faults ? 1 : 0;
    free(d);
}
