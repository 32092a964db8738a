#include "report/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/files.h"
#include "report/backlog.h"

struct cmn_csv {
    int fd;
    char *file;
    enum cmn_answer answer;
    struct cmn_backlog waiting;
};

/* As RFC 4180 asks; no field needs quotes. */
static const char line_end[] = "\r\n";

/* The line of a row, or the heading when row is NULL. The caller frees it. */
static char *make_line(enum cmn_answer answer, const struct cmn_row *row)
{
    const struct cmn_column *column;
    const char *separator = "";
    char *line = NULL;
    size_t bytes;
    FILE *out = open_memstream(&line, &bytes);

    if (!out) {
        cmn_fatal("CSV: out of memory");
    }
    for (int i = 0; (column = cmn_column_at(i)); i++) {
        double value = row ? cmn_column_get(column, row) : 0;
        if (!cmn_column_of(column, answer)) {
            continue;
        }
        fputs(separator, out);
        separator = ",";
        if (!row) {
            fputs(column->name, out);
        } else if (cmn_column_known(column, row)) {
            /* Seven digits, as in the JSON log; NaN without its sign. */
            fprintf(out, "%.7g", isnan(value) ? fabs(value) : value);
        }
    }
    fputs(line_end, out);
    if (fclose(out)) {
        cmn_fatal("CSV: out of memory");
    }
    return line;
}

/* For the backlog. */
static int append(void *csv, const void *line, size_t bytes)
{
    const struct cmn_csv *c = csv;

    return cmn_append("CSV", c->file, c->fd, line, bytes);
}

/* Whether the line is a whole row; if so, sets its epoch and iteration. */
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

/* Bytes of an older file that stay, heading and rows. 0: it is empty; -1: it has another
 * heading. */
static off_t older(FILE *in, const char *heading, const struct cmn_log_resume *resume)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, in);
    off_t keep = n < 0 ? 0 : strcmp(line, heading) ? -1 : n, end = keep;
    double epoch, iteration;

    while (keep > 0 && (n = getline(&line, &room, in)) >= 0 &&
           is_row(line, (size_t)n, &epoch, &iteration)) {
        end += n;
        if (cmn_log_keeps(resume, epoch, iteration)) {
            keep = end;
        }
    }
    free(line);
    return keep;
}

static int begin(struct cmn_csv *c, const struct cmn_log_resume *resume)
{
    char *heading = make_line(c->answer, NULL);
    FILE *in = cmn_log_resumes(resume) ? fopen(c->file, "r") : NULL;
    off_t keep = in ? older(in, heading, resume) : 0;
    int result;

    if (in) {
        fclose(in);
    }
    if (keep < 0) {
        free(heading);
        return cmn_fail("CSV %s: it holds other columns than this training's, which cannot be "
                        "appended: move it away, or give another name",
                        c->file);
    }
    c->fd = cmn_open_in_place("CSV", c->file, O_WRONLY | O_CREAT);
    if (c->fd < 0) {
        result = -1;
    } else if (ftruncate(c->fd, keep)) {
        result = cmn_fail("CSV %s: %s", c->file, strerror(errno));
    } else {
        result = keep ? 0 : append(c, heading, strlen(heading));
    }
    free(heading);
    return result;
}

struct cmn_csv *cmn_csv_open(const char *file, enum cmn_answer answer,
                             const struct cmn_log_resume *resume)
{
    struct cmn_csv *c = cmn_calloc(1, sizeof *c);

    c->file = cmn_strdup(file);
    c->fd = -1;
    c->answer = answer;
    cmn_backlog_open(&c->waiting, "CSV", file, append, c);
    if (!cmn_files_replaceable("CSV", file, "epoch,iteration,", NULL, 0) && !begin(c, resume)) {
        return c;
    }
    cmn_csv_close(c);
    return NULL;
}

void cmn_csv_row(struct cmn_csv *c, const struct cmn_row *row)
{
    char *line = make_line(c->answer, row);

    cmn_backlog_add(&c->waiting, line, strlen(line));
    free(line);
}

int cmn_csv_sync(const struct cmn_csv *c)
{
    return cmn_sync_in_place(c->fd);
}

int cmn_csv_close(struct cmn_csv *c)
{
    int result;

    if (!c) {
        return 0;
    }
    result = cmn_backlog_close(&c->waiting);
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c->file);
    free(c);
    return result;
}
