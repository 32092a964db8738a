#include "trainer/balance.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "transports/sum_tree.h"

/* A new deal must save this part of the time of a step; smaller differences are noise. */
static const double worth = .05;

/* Lower limit of a measured time in seconds: a clock may not have advanced. */
static const double least = 1e-9;

void cmn_balance_deal(const double *seconds, int ranks, int micro_batches, int *count)
{
    for (int rank = 0; rank < ranks; rank++) {
        count[rank] = 1;
    }
    for (int left = micro_batches - ranks; left > 0; left--) {
        int next = 0;
        for (int rank = 1; rank < ranks; rank++) {
            if ((count[rank] + 1) * seconds[rank] < (count[next] + 1) * seconds[next]) {
                next = rank;
            }
        }
        count[next]++;
    }
}

double cmn_balance_takes(const double *seconds, int ranks, const int *count)
{
    double most = 0;

    for (int rank = 0; rank < ranks; rank++) {
        most = count[rank] * seconds[rank] > most ? count[rank] * seconds[rank] : most;
    }
    return most;
}

void cmn_balance_open(struct cmn_balance *b, int ranks, int micro_batches, int on)
{
    *b = (struct cmn_balance){.on = on && ranks > 1 && ranks < micro_batches,
                              .ranks = ranks,
                              .micro_batches = micro_batches};
    pthread_mutex_init(&b->lock, NULL);
    for (int i = 0; i < 2; i++) {
        b->first[i] = cmn_calloc((size_t)ranks + 1, sizeof *b->first[i]);
        for (int rank = 0; rank <= ranks; rank++) {
            b->first[i][rank] = cmn_sum_tree_first(micro_batches, rank, ranks);
        }
    }
    b->seconds = cmn_calloc((size_t)ranks, sizeof *b->seconds);
}

void cmn_balance_close(struct cmn_balance *b)
{
    if (b->ranks) {
        pthread_mutex_destroy(&b->lock);
    }
    free(b->first[0]);
    free(b->first[1]);
    free(b->seconds);
    *b = (struct cmn_balance){0};
}

void cmn_balance_first(struct cmn_balance *b, long step, int *first)
{
    pthread_mutex_lock(&b->lock);
    memcpy(first, b->first[step >= b->from], ((size_t)b->ranks + 1) * sizeof *first);
    pthread_mutex_unlock(&b->lock);
}

static void smooth(struct cmn_balance *b, const double *seconds)
{
    for (int rank = 0; rank < b->ranks; rank++) {
        double now = seconds[rank] > least ? seconds[rank] : least;
        b->seconds[rank] = b->seconds[rank] > 0 ? (b->seconds[rank] + now) / 2 : now;
    }
}

static void counts(const int *first, int ranks, int *count)
{
    for (int rank = 0; rank < ranks; rank++) {
        count[rank] = first[rank + 1] - first[rank];
    }
}

static void begin_deal(struct cmn_balance *b, long step, const int *count)
{
    int *spare = b->first[0];

    pthread_mutex_lock(&b->lock);
    b->first[0] = b->first[1]; /* deals are more than two steps apart, so this one is in use */
    b->first[1] = spare;
    for (int rank = 0; rank < b->ranks; rank++) {
        spare[rank + 1] = spare[rank] + count[rank];
    }
    b->from = step + 2;
    pthread_mutex_unlock(&b->lock);
}

int cmn_balance_measured(struct cmn_balance *b, long step, const double *seconds, double *part)
{
    int *now = cmn_calloc(3 * (size_t)b->ranks, sizeof *now), *next = now + b->ranks,
        *equal = next + b->ranks;
    double takes;
    int deals;

    smooth(b, seconds);
    counts(b->first[1], b->ranks, now);
    for (int rank = 0; rank < b->ranks; rank++) {
        equal[rank] = cmn_sum_tree_first(b->micro_batches, rank + 1, b->ranks) -
                      cmn_sum_tree_first(b->micro_batches, rank, b->ranks);
    }
    cmn_balance_deal(b->seconds, b->ranks, b->micro_batches, next);
    takes = cmn_balance_takes(b->seconds, b->ranks, next);
    deals = takes < (1 - worth) * cmn_balance_takes(b->seconds, b->ranks, now);
    if (deals) {
        begin_deal(b, step, next);
        *part = takes / cmn_balance_takes(b->seconds, b->ranks, equal);
    }
    free(now);
    return deals;
}
