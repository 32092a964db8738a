/* What a restart needs besides weights and flat buffer is what cmn_optimizer_state() lists. */
#include "sides.h"

/* What rank 0 alone writes to a checkpoint has the same bits on all ranks that list it: on the first of
 * each node where its ranks have it in common. */
static void check_equal(const struct cmn_topology *t, const struct cmn_state *state,
                        const char *what)
{
    size_t bytes = state->bytes;
    char *first;

    MPI_Bcast(&bytes, sizeof bytes, MPI_BYTE, 0, t->world);
    first = calloc(bytes + 1, 1);
    memcpy(first, state->data, state->bytes);
    MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, t->world);
    CHECK_SAYING(bytes > 0 && (state->bytes ? !memcmp(first, state->data, bytes) : t->intra_rank),
                 "%s: %s is not the same on all ranks", what, state->name);
    free(first);
}

/* Momentum in the flat buffer is where the optimizer says, and rank 0 has it wherever there are
 * several copies. */
static void check_momentum(const struct cmn_topology *t, struct side *s, const char *what)
{
    struct cmn_momentum_part part = cmn_optimizer_momentum(&s->s);
    const struct cmn_span *block = &s->g.exchange.block;
    float *first = malloc((block->n + 1) * sizeof *first);

    memcpy(first, block->data, block->n * sizeof *first);
    MPI_Bcast(first, (int)block->n, MPI_FLOAT, 0, t->world);
    for (size_t i = 0; i < block->n; i++) {
        int here = i >= part.first && i < part.first + part.n;
        uint32_t bits, other;
        memcpy(&bits, &block->data[i], sizeof bits);
        memcpy(&other, &first[i], sizeof other);
        CHECK_SAYING(here ? part.copies == 1 || bits == other : bits == 0,
                     "%.40s, %s: momentum of float %zu", s->s.communicator.name, what, i);
    }
    free(first);
}

static void look(struct side *from, struct side *to, const char *what)
{
    enum cmn_state_owner owner;
    struct cmn_state a, b;

    if (cmn_optimizer_replicates(&from->s)) {
        check_momentum(from->t, from, what);
    }
    for (int i = 0; (owner = cmn_optimizer_state(&from->s, i, &a)); i++) {
        CHECK_SAYING(cmn_optimizer_state(&to->s, i, &b) && a.bytes == b.bytes &&
                         !strcmp(a.name, b.name),
                     "%s: %s", what, a.name);
        if (owner == CMN_STATE_OF_ALL || owner == CMN_STATE_MOMENTUM) {
            check_equal(from->t, &a, what);
        }
    }
}

WORLD_TEST(restarts)
{
    size_t n;

    for (int k = 0; cmn_compressor_at(k); k++) {
        for (int way = 0; way < 4 && !failure[0]; way++) {
            struct cmn_options o;
            cmn_options_default(&o);
            o.compress = k;
            snprintf(o.communicator, sizeof o.communicator,
                     t->inter_size > 1 ? "two_dimensional" : "flat");
            o.local_steps = way & 1 ? EVERY : 1;
            o.double_buffering = way / 2;
            restart(t, &o, cmn_compressor_at(k)->name, trained(t, &o, &n), look);
        }
    }
    for (int way = 0; way < 3 && !failure[0]; way++) {
        struct cmn_options o;
        cmn_options_default(&o);
        snprintf(o.communicator, sizeof o.communicator, "shm");
        o.clip = way != 1 ? 2.5 : 0;
        o.lars = way ? 0.01 : 0;
        restart(t, &o, "clipping or LARS", trained(t, &o, &n), look);
    }
}

RANK_TESTS(NULL, NULL)
