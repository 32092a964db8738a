#include "report/row.h"

#include <stdio.h>
#include <stdlib.h>

#define AT(field) offsetof(struct cmn_row, field)
#define BY(answer) (1u << (answer))

static const struct cmn_column table[] = {
    {"epoch", AT(epoch), 0, 0, 8, "%.2f"},
    {"iteration", AT(iteration), 0, 0, 10, "%.0f"},
    {"main/loss", AT(loss), 1, 0, 10, "%.6f"},
    {"validation/main/loss", AT(validation_loss), 1, BY(CMN_CLASSES), 21, "%.6f"},
    {"main/accuracy", AT(accuracy), 1, BY(CMN_CLASSES), 14, "%.4f"},
    {"validation/main/accuracy", AT(validation_accuracy), 1, BY(CMN_CLASSES), 25, "%.4f"},
    {"validation/main/map", AT(validation_map), 1, BY(CMN_BOXES), 20, "%.4f"},
    {"validation/main/map50_95", AT(validation_map95), 1, BY(CMN_BOXES), 25, "%.4f"},
    {"lr", AT(lr), 0, 0, 12, "%.6g"},
    {"images/s", AT(images_per_s), 0, 0, 10, "%.0f"},
    {"elapsed_time", AT(elapsed), 0, 0, 12, "%.1f"},
    {"share/compute", AT(compute), 0, 0, 0, ""},
    {"share/exchange", AT(exchange), 0, 0, 0, ""},
    {"share/load", AT(load), 0, 0, 0, ""},
};

enum { COLUMNS = sizeof table / sizeof table[0] };

const struct cmn_column *cmn_column_at(int i)
{
    return i < COLUMNS ? &table[i] : NULL;
}

int cmn_column_of(const struct cmn_column *c, enum cmn_answer answer)
{
    return !c->answers || c->answers & BY(answer);
}

double cmn_column_get(const struct cmn_column *c, const struct cmn_row *row)
{
    const char *field = (const char *)row + c->at;

    return c->at == AT(iteration) ? (double)row->iteration : *(const double *)(const void *)field;
}

void cmn_column_set(const struct cmn_column *c, struct cmn_row *row, double value)
{
    char *field = (char *)row + c->at;

    if (c->at == AT(iteration)) {
        row->iteration = (long)value;
    } else {
        *(double *)(void *)field = value;
    }
}

int cmn_column_known(const struct cmn_column *c, const struct cmn_row *row)
{
    return !c->optional || !(cmn_column_get(c, row) < 0);
}

double cmn_log_number(double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.7g", value);
    return strtod(text, NULL);
}

struct cmn_row cmn_row_for(const struct cmn_row *row, enum cmn_answer answer)
{
    struct cmn_row own = *row;

    for (int i = 0; i < COLUMNS; i++) {
        if (!cmn_column_of(&table[i], answer)) {
            cmn_column_set(&table[i], &own, -1);
        }
    }
    return own;
}

int cmn_log_resumes(const struct cmn_log_resume *r)
{
    return r->iteration > 0 || r->epoch > 0;
}

int cmn_log_keeps(const struct cmn_log_resume *r, double epoch, double iteration)
{
    int earlier = iteration <= (double)r->iteration;

    if (!(r->epoch > 0 && epoch > 0)) {
        return earlier;
    }
    /* Epochs of another list order the rows only roughly. One row too many is better than a lost
     * one. */
    return epoch <= cmn_log_number(r->epoch) || (!r->same_list && earlier);
}
