#include "trainer/lineage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/job_stderr.h"
#include "base/log.h"
#include "checkpoint/reader.h"
#include "trainer/identity.h"

/* The state that an earlier attempt has reported: its training and its last checkpoint on the
 * disk. */
struct reached {
    char run[CMN_RUN_ID];
    size_t seen;    /* images */
    long iteration; /* -1: no checkpoint yet */
    char host[64];  /* rank 0's */
};

/* Returns whether an earlier attempt has reported something. */
static int find_reached(struct reached *r)
{
    const char *text = getenv("OMPI_CMN_REACHED");

    return text && sscanf(text, "%16s %zu %ld %63s", r->run, &r->seen, &r->iteration, r->host) == 4;
}

/* Copies the id in a checkpoint, but only hexadecimal digits: the file may come from anybody. */
static void run_of(const struct cmn_checkpoint_file *file, char run[CMN_RUN_ID])
{
    const char *text = cmn_saved_text(file->training, "run");

    snprintf(run, CMN_RUN_ID, "%.*s", (int)strspn(text, "0123456789abcdef"), text);
}

int cmn_lineage_is_continued(const struct cmn_checkpointing *c)
{
    struct reached before;
    char run[CMN_RUN_ID];

    if (!c->file || !find_reached(&before)) {
        return 0;
    }
    run_of(c->file, run);
    return !strcmp(run, before.run);
}

static int refuse(const struct cmn_checkpointing *c, const struct reached *before, const char *what)
{
    char host[64] = "", reached[64] = "has begun";

    gethostname(host, sizeof host - 1);
    if (before->iteration >= 0) {
        snprintf(reached, sizeof reached, "has reached iteration %ld", before->iteration);
    }
    return cmn_fail(
        "this training %s on %s, and %s on %s %s: all hosts must have one backup folder "
        "in common; copy its checkpoints there and start again",
        reached, before->host, c->session->backup, host, what);
}

int cmn_lineage_begin(struct cmn_checkpointing *c)
{
    struct reached before;
    int known = find_reached(&before);
    size_t seen = c->file ? (size_t)cmn_saved_number(c->file->training, "seen") : 0;
    char what[128];
    uint64_t id;

    if (c->file) {
        run_of(c->file, c->run);
    } else if (known) {
        memcpy(c->run, before.run, sizeof c->run);
    } else if (getentropy(&id, sizeof id)) {
        return cmn_fail("no random number for the training's id");
    } else {
        snprintf(c->run, sizeof c->run, "%016" PRIx64, id);
    }
    if (known && strcmp(c->run, before.run)) {
        snprintf(what, sizeof what, "has a checkpoint of iteration %ld of another one",
                 c->file->iteration);
        return refuse(c, &before, what);
    }
    if (known && !c->file && before.iteration >= 0) {
        return refuse(c, &before, "has no checkpoint of it");
    }
    /* If a later checkpoint exists, it is damaged, and a message has named it. */
    if (known && c->file && seen < before.seen &&
        cmn_checkpoint_latest(c->session->backup, c->model->name) == c->file->iteration) {
        snprintf(what, sizeof what, "has it up to iteration %ld", c->file->iteration);
        return refuse(c, &before, what);
    }
    cmn_lineage_tell(c, "training", c->file ? c->file->iteration : -1, seen);
    return 0;
}

void cmn_lineage_tell(const struct cmn_checkpointing *c, const char *kind, long iteration,
                      size_t seen)
{
    char text[160], host[64] = "";

    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s %zu %ld %s", c->run, seen, iteration, host);
    cmn_job_event(kind, iteration, text);
}
