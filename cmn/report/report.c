#include "report/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "terminal.h"

enum { LINE = 512, BAR = 30 };

struct cmn_report {
    enum cmn_report_mode mode;
    struct cmn_json *json;
    long total;
    int watched; /* a person looks at a terminal */
    int rows;
    int bar_drawn;
    int saved; /* the real standard output while Darknet's lines are hidden, or -1 */
    FILE *out; /* where rows and bar go; NULL: nowhere */
    double started, drawn;
    long first; /* iteration at which this run began */
};

/* Takes the standard output away from Darknet, keeping it for the table. */
static int hide_darknet(struct cmn_report *r)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    fflush(stdout);
    r->saved = dup(STDOUT_FILENO);
    if (null < 0 || r->saved < 0 || dup2(null, STDOUT_FILENO) < 0) {
        return cmn_fail("report: cannot redirect the standard output");
    }
    close(null);
    if (r->mode != CMN_REPORT_QUIET) {
        int copy = dup(r->saved);
        r->out = copy < 0 ? NULL : fdopen(copy, "w");
    }
    return 0;
}

struct cmn_report *cmn_report_open(enum cmn_report_mode mode, const char *json, long first,
                                   long total)
{
    struct cmn_report *r = calloc(1, sizeof *r);

    if (!r) {
        cmn_fail("report: out of memory");
        return NULL;
    }
    r->mode = mode;
    r->total = total;
    r->saved = -1;
    r->first = first;
    r->started = cmn_clock();
    r->watched = cmn_terminal_watched();
    r->json = cmn_json_open(json, first);
    if (!r->json) {
        cmn_report_close(r);
        return NULL;
    }
    /* Scripts read Darknet's lines from files and pipes: only on a terminal do they go. */
    if (mode == CMN_REPORT_QUIET || (mode == CMN_REPORT_TABLE && r->watched)) {
        if (hide_darknet(r)) {
            cmn_report_close(r);
            return NULL;
        }
    } else {
        r->out = stdout;
    }
    return r;
}

void cmn_report_clear(struct cmn_report *r)
{
    if (r && r->bar_drawn) {
        fputs("\r\033[K", r->out);
        fflush(r->out);
        r->bar_drawn = 0;
    }
}

int cmn_report_row(struct cmn_report *r, const struct cmn_row *row)
{
    struct cmn_straggler straggler;
    char line[LINE];

    if (cmn_straggler_find(row->rank, row->ranks, row->steps, &straggler)) {
        return -1;
    }
    if (r->out) {
        cmn_report_clear(r);
        if (r->rows++ == 0) {
            cmn_table_heading(line, sizeof line);
            fprintf(r->out, "%s\n", line);
        }
        cmn_table_row(row, line, sizeof line);
        fprintf(r->out, "%s\n", line);
        if (row->ranks > 0) {
            cmn_ranks_line(row->rank, row->ranks, row->steps, &straggler, line, sizeof line);
            fprintf(r->out, "%s\n", line);
        }
        fflush(r->out);
    }
    return cmn_json_row(r->json, row, &straggler);
}

void cmn_report_progress(struct cmn_report *r, long iteration, double epoch, double images_per_s)
{
    char bar[BAR + 1];
    double time = cmn_clock();
    long todo = r->total - iteration;
    double left;
    int filled;

    if (!r->out || !r->watched || r->mode != CMN_REPORT_TABLE || time - r->drawn < 0.1) {
        return;
    }
    r->drawn = time;
    if (r->total <= 0 || todo < 0) {
        fprintf(r->out, "\riteration %ld  epoch %.2f  %.0f images/s\033[K", iteration, epoch,
                images_per_s);
    } else {
        filled = (int)(iteration * BAR / r->total);
        memset(bar, ' ', BAR);
        memset(bar, '#', (size_t)filled);
        bar[BAR] = '\0';
        left = (time - r->started) / (double)(iteration - r->first) * (double)todo;
        fprintf(r->out,
                "\r[%s] %3ld %%  iteration %ld/%ld  epoch %.2f  %.0f images/s  ETA %ld:%02ld"
                "\033[K",
                bar, iteration * 100 / r->total, iteration, r->total, epoch, images_per_s,
                (long)left / 60, (long)left % 60);
    }
    r->bar_drawn = 1;
    fflush(r->out);
}

void cmn_report_close(struct cmn_report *r)
{
    if (!r) {
        return;
    }
    if (r->out) {
        cmn_report_clear(r);
        fflush(r->out);
    }
    if (r->out && r->out != stdout) {
        fclose(r->out);
    }
    if (r->saved >= 0) {
        fflush(stdout);
        dup2(r->saved, STDOUT_FILENO);
        close(r->saved);
    }
    cmn_json_close(r->json);
    free(r);
}
