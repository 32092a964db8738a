/* cmn_balance: assigns the micro-batches of a step to ranks by their speed. It needs cmn_exact,
 * with which results do not depend on who computes a micro-batch.
 *
 * An assignment ("deal") gives each rank consecutive micro-batches, at least one. Every few steps
 * all ranks exchange how many seconds a micro-batch takes each of them, and all compute the same
 * new deal from these numbers. A deal measured after step s holds from step s + 2 on, because the
 * images of step s + 1 may be loaded already. */
#ifndef CMN_BALANCE_H
#define CMN_BALANCE_H

#include <pthread.h>

/* Local, pure. Deals micro_batches >= ranks micro-batches so that the last rank finishes as early
 * as possible. seconds[r] > 0 is the time of one micro-batch on rank r; count[r] becomes the number
 * of its micro-batches. Among equal ranks the lower ones get the remainder. */
void cmn_balance_deal(const double *seconds, int ranks, int micro_batches, int *count);

/* Local, pure. Returns the seconds until the last rank has computed its micro-batches. */
double cmn_balance_takes(const double *seconds, int ranks, const int *count);

struct cmn_balance {
    int on; /* 0: deals stay equal */
    int ranks, micro_batches;
    pthread_mutex_t lock;
    int *first[2];   /* deal before step `from`, and since then */
    long from;       /* step of this run, from 0 */
    double *seconds; /* each rank's time for a micro-batch, smoothed; 0: not measured yet */
};

/* Local. Begins with an equal deal. If there are more ranks than micro-batches, the last ranks have
 * none and `on` is 0. */
void cmn_balance_open(struct cmn_balance *b, int ranks, int micro_batches, int on);
void cmn_balance_close(struct cmn_balance *b);

/* Local, thread-safe. Copies the deal of that step to first[ranks + 1]: each rank's first
 * micro-batch, and their number. */
void cmn_balance_first(struct cmn_balance *b, long step, int *first);

/* Local. Takes the seconds that a micro-batch of this step took each rank. Returns whether there is
 * a new deal; it begins with step + 2, and *part is its time relative to that of an equal deal. */
int cmn_balance_measured(struct cmn_balance *b, long step, const double *seconds, double *part);

#endif
