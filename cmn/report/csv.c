#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "mpi/files.h"
#include "base/log.h"
#include "report/report.h"

enum { LINE = 1024 };

struct cmn_csv {
    int fd;
    char *file;
    enum cmn_answer answer;
};

/* RFC 4180 ends a line so, and no field of ours needs quotes. */
static const char line_end[] = "\r\n";

static void put(char line[LINE], size_t *used, const char *before, const char *field)
{
    int n = snprintf(line + *used, LINE - *used, "%s%s", before, field);

    *used += n < 0 ? 0 : (size_t)n;
    *used = *used < LINE ? *used : LINE - 1;
}

/* The line of a row; of NULL the heading. Returns its length. */
static size_t make_line(enum cmn_answer answer, const struct cmn_row *row, char line[LINE])
{
    const struct cmn_column *column;
    size_t used = 0;

    for (int i = 0; (column = cmn_column_at(i)); i++) {
        char number[32] = "";
        double value = row ? cmn_column_get(column, row) : 0;
        if (!cmn_column_of(column, answer)) {
            continue;
        }
        if (row && cmn_column_known(column, row)) {
            /* Seven digits, as in the JSON log. The sign of a NaN says nothing. */
            snprintf(number, sizeof number, "%.7g", isnan(value) ? fabs(value) : value);
        }
        put(line, &used, used ? "," : "", row ? number : column->name);
    }
    put(line, &used, line_end, "");
    return used;
}

/* A line goes out in one piece, so who kills this process leaves whole lines. What a full disk took of one is cut off. */
static int append(const struct cmn_csv *c, const char *line, size_t bytes)
{
    off_t end = lseek(c->fd, 0, SEEK_END);
    ssize_t written = end < 0 ? -1 : write(c->fd, line, bytes);
    int reason = written < 0 ? errno : ENOSPC;

    if (written == (ssize_t)bytes) {
        return 0;
    }
    if (written > 0 && ftruncate(c->fd, end)) {
        reason = errno;
    }
    return cmn_fail("CSV %s: %s", c->file, strerror(reason));
}

/* Whether the line is that of a whole row, whose epoch and iteration it gives. */
static int is_row(const char *line, size_t bytes, double *epoch, double *iteration)
{
    char *comma = NULL, *end = NULL;

    if (bytes < sizeof line_end || strcmp(line + bytes + 1 - sizeof line_end, line_end)) {
        return 0;
    }
    *epoch = strtod(line, &comma);
    if (comma == line || *comma != ',') {
        return 0;
    }
    *iteration = strtod(comma + 1, &end);
    return end > comma + 1 && (*end == ',' || *end == '\r');
}

/* How many bytes of an older file stay: its heading and rows. 0: it is empty; -1: its heading is another one. */
static off_t older(FILE *in, const char *heading, const struct cmn_kept *kept)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, in);
    off_t keep = n < 0 ? 0 : strcmp(line, heading) ? -1 : n, end = keep;
    double epoch, iteration;

    while (keep > 0 && (n = getline(&line, &room, in)) >= 0 &&
           is_row(line, (size_t)n, &epoch, &iteration)) {
        end += n;
        if (cmn_kept_holds(kept, epoch, iteration)) {
            keep = end;
        }
    }
    free(line);
    return keep;
}

static int begin(struct cmn_csv *c, const struct cmn_kept *kept)
{
    char heading[LINE];
    size_t bytes = make_line(c->answer, NULL, heading);
    FILE *in = cmn_kept_any(kept) ? fopen(c->file, "r") : NULL;
    off_t keep = in ? older(in, heading, kept) : 0;

    if (in) {
        fclose(in);
    }
    if (keep < 0) {
        return cmn_fail("CSV %s: what is there is no log of such a training, which could go on: "
                        "move it away, or give another name",
                        c->file);
    }
    c->fd = cmn_open_in_place("CSV", c->file, O_WRONLY | O_CREAT);
    if (c->fd < 0) {
        return -1;
    }
    if (ftruncate(c->fd, keep)) {
        return cmn_fail("CSV %s: %s", c->file, strerror(errno));
    }
    return keep ? 0 : append(c, heading, bytes);
}

struct cmn_csv *cmn_csv_open(const char *file, enum cmn_answer answer, const struct cmn_kept *kept)
{
    struct cmn_csv *c = calloc(1, sizeof *c);

    if (!c || !(c->file = strdup(file))) {
        cmn_fail("CSV: out of memory");
        free(c);
        return NULL;
    }
    c->fd = -1;
    c->answer = answer;
    if (!cmn_files_replaceable("CSV", file, "epoch,") && !begin(c, kept)) {
        return c;
    }
    cmn_csv_close(c);
    return NULL;
}

int cmn_csv_row(struct cmn_csv *c, const struct cmn_row *row)
{
    char line[LINE];
    size_t bytes = make_line(c->answer, row, line);

    return append(c, line, bytes);
}

void cmn_csv_close(struct cmn_csv *c)
{
    if (!c) {
        return;
    }
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c->file);
    free(c);
}
