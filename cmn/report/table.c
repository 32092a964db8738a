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
