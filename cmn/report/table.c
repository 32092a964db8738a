#include "report/table.h"

void cmn_table_heading(FILE *out, enum cmn_answer answer)
{
    const struct cmn_column *c;

    for (int i = 0; (c = cmn_column_at(i)); i++) {
        if (c->width && cmn_column_of(c, answer)) {
            fprintf(out, "%-*s ", c->width, c->name);
        }
    }
    putc('\n', out);
}

void cmn_table_row(FILE *out, enum cmn_answer answer, const struct cmn_row *row)
{
    const struct cmn_column *c;

    for (int i = 0; (c = cmn_column_at(i)); i++) {
        char number[64] = "";
        if (c->width && cmn_column_of(c, answer)) {
            if (cmn_column_known(c, row)) {
                snprintf(number, sizeof number, c->format, cmn_column_get(c, row));
            }
            fprintf(out, "%-*s ", c->width, number);
        }
    }
    putc('\n', out);
}

void cmn_duration(double seconds, char *text, size_t bytes)
{
    long s = seconds > 0 && seconds < 1e12 ? (long)seconds : 0;
    long minutes = s / 60, hours = minutes / 60;

    if (hours >= 24) {
        snprintf(text, bytes, "%ld d %02ld:%02ld", hours / 24, hours % 24, minutes % 60);
    } else if (hours > 0) {
        snprintf(text, bytes, "%ld:%02ld:%02ld", hours, minutes % 60, s % 60);
    } else {
        snprintf(text, bytes, "%ld:%02ld", minutes, s % 60);
    }
}
