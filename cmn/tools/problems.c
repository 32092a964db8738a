#include "tools/problems.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

static const struct {
    const char *one, *many; /* the text after the number: singular, plural */
    int note;               /* 1: a training does not suffer from it; 0: a fault */
} kinds[] = {
    [CMN_BAD_LINE] = {"line cannot be read", "lines cannot be read", 0},
    [CMN_BAD_NUMBER] = {"number is wrong", "numbers are wrong", 0},
    [CMN_BAD_WORD] = {"word is wrong", "words are wrong", 0},
    [CMN_BAD_LAYER] = {"layer or number does not fit", "layers or numbers do not fit", 0},
    [CMN_BAD_FILE] = {"file cannot be used", "files cannot be used", 0},
    [CMN_BAD_CLASSES] = {"number of classes is wrong", "numbers of classes are wrong", 0},
    [CMN_BAD_FILTERS] = {"filters= is wrong", "filters= are wrong", 0},
    [CMN_BAD_ANCHORS] = {"wrong list of anchors", "wrong lists of anchors", 0},
    [CMN_REFUSED_LAYER] = {"layer or key is refused with -cmn",
                           "layers or keys are refused with -cmn", 0},
    [CMN_BAD_NAMES] = {"list of names is wrong", "lists of names are wrong", 0},
    [CMN_MISSING_IMAGE] = {"image is missing", "images are missing", 0},
    [CMN_UNREADABLE_IMAGE] = {"image cannot be read", "images cannot be read", 0},
    [CMN_TURNED_IMAGE] = {"image is turned by viewers", "images are turned by viewers", 1},
    [CMN_LISTED_TWICE] = {"image is listed more than once", "images are listed more than once", 0},
    [CMN_TRAINED_AND_VALID] = {"image or list serves training and validation",
                               "images serve training and validation", 1},
    [CMN_SAME_BYTES] = {"image is a copy of another one", "images are copies of others", 1},
    [CMN_NO_LABEL_FILE] = {"image has no label file", "images have no label file", 0},
    [CMN_BAD_LABEL] = {"label cannot be read", "labels cannot be read", 0},
    [CMN_UNKNOWN_CLASS] = {"box has an unknown class", "boxes have an unknown class", 0},
    [CMN_EMPTY_BOX] = {"box has no area", "boxes have no area", 0},
    [CMN_BOX_OUTSIDE] = {"box lies outside of its image", "boxes lie outside of their images", 0},
    [CMN_BOX_CUT] = {"box reaches out of its image", "boxes reach out of their images", 1},
    [CMN_MANY_BOXES] = {"image has too many boxes", "images have too many boxes", 1},
    [CMN_NO_LABEL] = {"image has no label", "images have no label", 0},
    [CMN_MANY_LABELS] = {"image has several labels", "images have several labels", 0},
    [CMN_UNUSED_CLASS] = {"list lacks classes", "lists lack classes", 1},
    [CMN_UNUSED_KEY] = {"key has no effect", "keys have no effect", 0},
    [CMN_FOREIGN_KEY] = {"key exists only in AlexeyAB's Darknet, and has no effect here",
                         "keys exist only in AlexeyAB's Darknet, and have no effect here", 1},
    [CMN_ADVICE] = {"line is unusual", "lines are unusual", 1},
    [CMN_NO_ROOM] = {"thing does not fit the memory", "things do not fit the memory", 0},
};
_Static_assert(sizeof kinds / sizeof kinds[0] == CMN_PROBLEM_KINDS, "each kind has its words");

/* Inserts a problem into the sorted list of a kind, which keeps the first ten. `n` problems of the
 * kind came before. */
static void insert(struct cmn_problem first[CMN_PROBLEMS_SHOWN], long n,
                   const struct cmn_problem *new)
{
    int i = n < CMN_PROBLEMS_SHOWN ? (int)n : CMN_PROBLEMS_SHOWN;

    while (i > 0 && first[i - 1].place > new->place) {
        i--;
    }
    if (i < CMN_PROBLEMS_SHOWN) {
        memmove(&first[i + 1], &first[i], (size_t)(CMN_PROBLEMS_SHOWN - 1 - i) * sizeof *first);
        first[i] = *new;
    }
}

void cmn_problem_add(struct cmn_problems *p, enum cmn_problem_kind kind, int64_t place,
                     const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct cmn_problem new = {.place = place};
    va_list args;

    va_start(args, format);
    vsnprintf(new.text, sizeof new.text, format, args);
    va_end(args);
    cmn_printable(new.text);
    pthread_mutex_lock(&lock);
    insert(p->first[kind], p->count[kind]++, &new);
    pthread_mutex_unlock(&lock);
}

void cmn_problems_gather(struct cmn_problems *p, const struct cmn_topology *t)
{
    struct cmn_problems *all = t->rank ? NULL : cmn_calloc((size_t)t->size, sizeof *all);

    MPI_CALL(MPI_Gather(p, (int)sizeof *p, MPI_BYTE, all, (int)sizeof *p, MPI_BYTE, 0, t->world));
    for (int r = 1; r < t->size && all; r++) {
        for (int k = 0; k < CMN_PROBLEM_KINDS; k++) {
            for (int i = 0; i < all[r].count[k] && i < CMN_PROBLEMS_SHOWN; i++) {
                insert(p->first[k], p->count[k] + i, &all[r].first[k][i]);
            }
            p->count[k] += all[r].count[k];
        }
    }
    free(all);
}

void cmn_problems_print(const struct cmn_problems *p, enum cmn_problem_kind first,
                        enum cmn_problem_kind last, FILE *out)
{
    for (enum cmn_problem_kind k = first; k <= last; k++) {
        long n = p->count[k];
        if (n) {
            fprintf(out, "%s: %ld %s\n", kinds[k].note ? "note" : "fault", n,
                    n == 1 ? kinds[k].one : kinds[k].many);
        }
        for (int i = 0; i < n && i < CMN_PROBLEMS_SHOWN; i++) {
            fprintf(out, "  %s\n", p->first[k][i].text);
        }
        if (n > CMN_PROBLEMS_SHOWN) {
            fprintf(out, "  and %ld more\n", n - CMN_PROBLEMS_SHOWN);
        }
    }
}

long cmn_problems_count(const struct cmn_problems *p, int notes)
{
    long n = 0;

    for (int k = 0; k < CMN_PROBLEM_KINDS; k++) {
        n += kinds[k].note == notes ? p->count[k] : 0;
    }
    return n;
}
