/* cmn_balance: which micro-batches of a step a rank computes follows from how fast it is. It goes
 * with cmn_exact, where who computes what changes no bit.
 *
 * A deal gives each rank consecutive micro-batches, at least one. Every few steps all ranks exchange
 * the seconds that a micro-batch takes them, and each finds the same new deal from the same numbers.
 * It holds from the step after the next one on: images of the next one may be loaded already. */
#ifndef CMN_BALANCE_H
#define CMN_BALANCE_H

#include <pthread.h>

/* Local, pure. Deals micro_batches to ranks, at least as many as ranks, so that the last rank ends
 * as early as it can; seconds[r] > 0 is what one takes rank r. Each of equal ranks gets one more in
 * the order of the ranks. */
void cmn_balance_deal(const double *seconds, int ranks, int micro_batches, int *count);

/* Local, pure. Seconds until the last rank has computed its micro-batches. */
double cmn_balance_takes(const double *seconds, int ranks, const int *count);

struct cmn_balance {
    int on; /* else deals stay equal */
    int ranks, micro_batches;
    pthread_mutex_t lock;
    int *first[2];   /* of each rank, and the end: before step `from`, and from it on */
    long from;       /* step of this run, from 0 */
    double *seconds; /* of a micro-batch of each rank, smoothed; 0: not known yet */
};

/* Local. Equal deals; with more ranks than micro-batches the last ones have none, and `on` is 0. */
void cmn_balance_open(struct cmn_balance *b, int ranks, int micro_batches, int on);
void cmn_balance_close(struct cmn_balance *b);

/* Local, thread-safe. The first micro-batch of each rank in that step, and their end: copied to
 * first[ranks + 1]. */
void cmn_balance_first(struct cmn_balance *b, long step, int *first);

/* Local. After that step a micro-batch has taken each rank so many seconds. Returns whether there is
 * a new deal, which begins with step + 2 and takes *part of the time of equal ones. */
int cmn_balance_measured(struct cmn_balance *b, long step, const double *seconds, double *part);

#endif
