#include <stdio.h>

#include "report/report.h"

void cmn_table_heading(enum cmn_answer answer, char *text, size_t bytes)
{
    const struct cmn_column *c;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; (c = cmn_column_at(i)) && used < bytes; i++) {
        if (c->width && cmn_column_of(c, answer)) {
            used += (size_t)snprintf(text + used, bytes - used, "%-*s", c->width + 1, c->name);
        }
    }
}

void cmn_table_row(enum cmn_answer answer, const struct cmn_row *row, char *text, size_t bytes)
{
    const struct cmn_column *c;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; (c = cmn_column_at(i)) && used < bytes; i++) {
        char number[32] = "";
        if (!c->width || !cmn_column_of(c, answer)) {
            continue;
        }
        if (cmn_column_known(c, row)) {
            snprintf(number, sizeof number, c->format, cmn_column_get(c, row));
        }
        used += (size_t)snprintf(text + used, bytes - used, "%-*s", c->width + 1, number);
    }
}
