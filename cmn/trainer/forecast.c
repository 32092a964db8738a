#include "trainer/forecast.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "mpi/call.h"
#include "trainer/feed.h"
#include "trainer/model.h"

/* ---- the network ---- */

/* Tools divide the batch of a cfg as a training does, whatever it trains. */
static const struct cmn_command training = {"a", "cfg", CMN_TRAINS, CMN_NO_ANSWER, CMN_IN_BOTH, ""};

struct look {
    const struct cmn_session *session;
    struct cmn_optimizer *optimizer;
};

static void look_at(struct cmn_net *net, void *look)
{
    struct look *l = look;

    cmn_model_plan(l->session, net, l->optimizer);
}

struct cmn_forecast cmn_forecast_cfg(struct cmn_session *s, const char *cfg)
{
    struct cmn_forecast f;
    struct look look = {s, &f.optimizer};
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);

    fflush(stderr);
    if (saved >= 0 && null >= 0) {
        dup2(null, STDERR_FILENO);
    }
    s->command = &training;
    f.plan = cmn_plan_cfg(cfg, look_at, &look);
    fflush(stderr);
    if (saved >= 0 && null >= 0) {
        dup2(saved, STDERR_FILENO);
    }
    close(saved);
    close(null);
    return f;
}

/* ---- memory ---- */

double cmn_forecast_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long all, mine = 0;

    if (file && fscanf(file, "%lu %lu", &all, &mine) != 2) {
        mine = 0;
    }
    if (file) {
        fclose(file);
    }
    return (double)mine * (double)sysconf(_SC_PAGESIZE);
}

const char *cmn_memory_text(double bytes)
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

/* LINE_BYTES: Darknet takes 512 bytes for each line of a list, whatever its length, and a few more
 * to find it. CACHED_BYTES: the image cache finds its images by their paths. */
enum { LINE_BYTES = 570, CACHED_BYTES = 200 };

static double part_of_cache(const struct cmn_memory_question *q)
{
    const struct cmn_session *s = q->session;
    double most = s->options.cache_mb >= 0 ? (double)s->options.cache_mb * (1 << 20)
                                           : (double)cmn_memory_free() / 4;
    double all = q->image_bytes + q->images * CACHED_BYTES;

    return (all < most ? all : most) / s->topology.intra_size;
}

/* Returns the bytes of the network on this rank. Rank 0 also has a copy of it, the checkpoint that
 * is being written, without the sums of cmn_exact and the gradients if they hold no momentum. Two
 * more copies are not counted: they exist if the next checkpoint is due before this one is on the
 * disk. */
static double network(const struct cmn_memory_question *q, int first, int end)
{
    const struct cmn_session *s = q->session;
    const struct cmn_optimizer *o = q->optimizer;
    double flat = (double)q->plan->flat * sizeof(float), own = (double)q->plan->weights;
    int kept = cmn_optimizer_blocks(o, first, end);

    if (s->topology.rank == 0 && s->options.checkpoint > 0) {
        return 2 * own + flat * (kept + cmn_optimizer_blocks(o, 0, 0) - o->policy->own_velocity);
    }
    return own + flat * kept;
}

/* Returns what this rank needs with this share of a step. */
static struct cmn_memory_need estimate(const struct cmn_memory_question *q,
                                       const struct cmn_share *share)
{
    const struct cmn_plan *p = q->plan;
    int first = share->first, end = first + share->micro_batches;
    double own = (double)share->local * share->micro_batches, sample = (double)p->sample * p->grows;
    double micro_batch = share->local * sample, at_once = own < p->threads ? own : p->threads;
    double decoded = q->images > 0 ? q->image_bytes / q->images : 0;

    return (struct cmn_memory_need){
        .program = q->program,
        .weights = network(q, first, end),
        .layers = ((double)p->per_image * share->local + (double)p->workspace) * p->grows,
        .lists = q->lines * LINE_BYTES,
        /* A batch is loaded while another one is trained with. A loader thread has an image as
         * bytes, as floats, and resized to the network's input. */
        .images = 2 * own * sample + at_once * (decoded * (1 + sizeof(float)) + sample) +
                  p->places * micro_batch,
        .cache = part_of_cache(q),
        .on_gpu = p->places ? (p->places - 1) * micro_batch : 0,
    };
}

static double without_cache(const struct cmn_memory_need *n)
{
    return n->program + n->weights + n->layers + n->lists + n->images;
}

/* Returns the smallest divisor of the batch that, as subdivisions, lets this rank need at most
 * `room` bytes; 0: there is none. */
static int fitting_subdivisions(const struct cmn_memory_question *q, double room)
{
    const struct cmn_session *s = q->session;
    int divides = s->options.sync_bn && s->options.batch != CMN_BATCH_PER_RANK;

    for (int i = 1; i <= q->batch; i++) {
        struct cmn_share share;
        struct cmn_memory_need n;
        if (q->batch % i || (divides && q->batch / i < s->topology.size)) {
            continue;
        }
        share = cmn_feed_share(s, q->batch / i, i);
        n = estimate(q, &share);
        if (without_cache(&n) <= room) {
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

static void find_fault(const struct cmn_memory_question *q, struct cmn_memory_answer *a)
{
    char cure[64];

    snprintf(cure, sizeof cure, "%s",
             q->session->topology.intra_size > 1 ? "start fewer ranks on a node" : "lower batch");
    if (a->fits) {
        snprintf(cure, sizeof cure, "raise subdivisions to %d", a->fits);
    }
    if (a->all > a->room) {
        snprintf(a->fault, sizeof a->fault, "%.300s: a rank needs about %s and has %s: %s", q->cfg,
                 cmn_memory_text(a->all), cmn_memory_text(a->room), cure);
    }
}

struct cmn_memory_answer cmn_forecast_memory(const struct cmn_memory_question *q)
{
    enum { NONE = 1 << 30 };
    const struct cmn_topology *t = &q->session->topology;
    double left = (double)cmn_memory_free() / t->intra_size + cmn_forecast_resident();
    struct cmn_share share =
        cmn_feed_share(q->session, q->batch / q->subdivisions, q->subdivisions);
    struct cmn_memory_need n = estimate(q, &share);
    struct cmn_memory_answer a = {.room = -largest(-left, t)};
    int fits = fitting_subdivisions(q, a.room);

    fits = (int)largest(fits ? fits : NONE, t);
    a.fits = fits < NONE ? fits : 0;
    a.need = (struct cmn_memory_need){
        largest(n.program, t), largest(n.weights, t), largest(n.layers, t), n.lists,
        largest(n.images, t),  largest(n.cache, t),   largest(n.on_gpu, t)};
    a.all = without_cache(&a.need);
    find_fault(q, &a);
    return a;
}
