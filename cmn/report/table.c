#include <stdio.h>

#include "report/report.h"

static const char *const heading[] = {
    "epoch",
    "iteration",
    "main/loss",
    "validation/main/loss",
    "main/accuracy",
    "validation/main/accuracy",
    "lr",
    "images/s",
    "elapsed_time",
};

static const int width[] = {8, 10, 10, 21, 14, 25, 12, 10, 12};

enum { COLUMNS = sizeof heading / sizeof heading[0] };

void cmn_table_heading(char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < COLUMNS && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%-*s", width[i] + 1, heading[i]);
    }
}

/* One cell; a negative value that `optional` marks is left blank. */
static size_t cell(char *text, size_t bytes, int column, const char *format, double value,
                   int optional)
{
    char number[32] = "";

    if (!optional || !(value < 0)) {
        snprintf(number, sizeof number, format, value);
    }
    return (size_t)snprintf(text, bytes, "%-*s", width[column] + 1, number);
}

void cmn_table_row(const struct cmn_row *row, char *text, size_t bytes)
{
    const double value[COLUMNS] = {
        row->epoch,    (double)row->iteration,
        row->loss,     row->validation_loss,
        row->accuracy, row->validation_loss < 0 ? -1 : row->validation_accuracy,
        row->lr,       row->images_per_s,
        row->elapsed,
    };
    static const char *const format[COLUMNS] = {
        "%.2f", "%.0f", "%.6f", "%.6f", "%.4f", "%.4f", "%.6g", "%.0f", "%.1f",
    };
    static const int optional[COLUMNS] = {0, 0, 1, 1, 1, 1, 0, 0, 0};
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < COLUMNS && used < bytes; i++) {
        used += cell(text + used, bytes - used, i, format[i], value[i], optional[i]);
    }
}
