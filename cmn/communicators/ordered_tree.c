#include "communicators/ordered_tree.h"

static int power_below(int n)
{
    int power = 1;

    while (2 * power < n) {
        power *= 2;
    }
    return power;
}

int cmn_subtrees_of_rank(struct cmn_subtree *list, int rank, int first, int end)
{
    int subtrees = 0;

    for (int n; first < end; first += n, subtrees++) {
        for (n = 1; first % (2 * n) == 0 && first + 2 * n <= end; n *= 2) {
        }
        if (list) {
            list[subtrees] = (struct cmn_subtree){first, n, rank, NULL};
        }
    }
    return subtrees;
}

int cmn_subtrees_most(int first, int end)
{
    int most = 0;

    for (int at = first; at < end; at++) {
        int subtrees = cmn_subtrees_of_rank(NULL, 0, first, at + 1);
        most = subtrees > most ? subtrees : most;
    }
    return most;
}

static int have_one_holder(const int *holder, int first, int end)
{
    int same = first + 1;

    while (same < end && holder[same] == holder[first]) {
        same++;
    }
    return same == end;
}

int cmn_subtrees_of_holders(struct cmn_subtree *list, const int *holder, int first, int end)
{
    int middle = first + power_below(end - first), left;

    if (have_one_holder(holder, first, end)) {
        *list = (struct cmn_subtree){first, end - first, holder[first], NULL};
        return 1;
    }
    left = cmn_subtrees_of_holders(list, holder, first, middle);
    return left + cmn_subtrees_of_holders(list + left, holder, middle, end);
}

float *cmn_subtrees_add_up(struct cmn_subtree_sum *s, int first, int end, float *into)
{
    int middle = first + power_below(end - first);
    float *both[2];

    if (s->next->first == first && s->next->first + s->next->n == end) {
        return s->next++->at + s->at;
    }
    both[0] = cmn_subtrees_add_up(s, first, middle, NULL);
    both[1] = cmn_subtrees_add_up(s, middle, end, NULL);
    into = into ? into : both[0];
    s->add(into, both, s->n);
    return into;
}
