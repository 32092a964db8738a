#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/output.h"
#include "report/chart.h"
#include "report/json_log.h"
#include "report/redraw.h"
#include "report/table.h"
#include "report/tensorboard.h"

enum { BAR = 30 }; /* characters of the progress bar */

struct cmn_report {
    struct cmn_report_plan plan;
    struct cmn_json_log *json;
    struct cmn_redraw chart;
    struct cmn_tensorboard *tensorboard; /* or NULL */
    int watched;                         /* the standard output is a terminal */
    int rows;
    int bar_drawn;
    int saved;             /* the real standard output while Darknet's lines are discarded, or -1 */
    FILE *out;             /* gets table and progress bar; NULL: neither is written */
    double started, drawn; /* cmn_clock(): begin of the report, last time the bar was drawn */
    int sync_said;
    _Atomic int sync_error; /* errno; cmn_report_sync() runs on another thread */
};

/* Redirects the standard output to /dev/null; the real one stays open for the table. */
static void discard_darknet(struct cmn_report *r)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    fflush(stdout);
    r->saved = dup(STDOUT_FILENO);
    if (null < 0 || r->saved < 0 || dup2(null, STDOUT_FILENO) < 0) {
        cmn_fatal("report: cannot redirect the standard output: %s", strerror(errno));
    }
    close(null);
    if (r->plan.mode != CMN_REPORT_QUIET) {
        int copy = dup(r->saved);
        r->out = copy < 0 ? NULL : fdopen(copy, "w");
    }
}

static int ends_in(const char *file, const char *end)
{
    size_t n = strlen(file), m = strlen(end);

    return n >= m && !strcmp(file + n - m, end);
}

/* Ends the job when two outputs have the same name, or one has a name of the training's own files:
 * they would overwrite each other. */
static void compare_names(const struct cmn_report_plan *p)
{
    const char *const key[] = {"cmn_json", "cmn_chart", "cmn_graph", "cmn_timeline"};
    const char *const file[] = {p->json, p->chart, p->graph, p->timeline};

    for (int i = 0; i < 4; i++) {
        if (file[i] && (ends_in(file[i], ".weights") || ends_in(file[i], ".checkpoint"))) {
            cmn_fatal("%s: %s has a name as the training gives its weights and checkpoints: choose "
                      "another one",
                      key[i], file[i]);
        }
        for (int j = 0; j < i; j++) {
            if (file[i] && file[j] && file[i][0] && !strcmp(file[i], file[j])) {
                cmn_fatal("%s and %s name the same file, %s: give them different names", key[j],
                          key[i], file[i]);
            }
        }
    }
}

/* Opens the JSON log last: if another output cannot be opened, an earlier training's log stays as
 * it is. 0, or -1 with a reason. */
static int open_files(struct cmn_report *r)
{
    const struct cmn_report_plan *p = &r->plan;

    if (cmn_json_log_replaceable(p->json) || (p->chart[0] && cmn_chart_check(p->chart)) ||
        (p->tensorboard[0] && !(r->tensorboard = cmn_tensorboard_open(p->tensorboard, p->first))) ||
        !(r->json = cmn_json_log_open(p->json, &p->resume))) {
        return -1;
    }
    if (p->chart[0]) {
        r->chart = (struct cmn_redraw){.log = p->json, .file = p->chart};
    }
    return 0;
}

struct cmn_report *cmn_report_open(const struct cmn_report_plan *plan)
{
    struct cmn_report *r = cmn_calloc(1, sizeof *r);
    enum cmn_report_mode mode = plan->mode;

    r->plan = *plan;
    r->saved = -1;
    r->started = cmn_clock();
    r->watched = cmn_output_watched();
    compare_names(plan);
    if (open_files(r)) {
        cmn_report_close(r);
        cmn_fatal_reason();
    }
    /* Scripts read Darknet's lines from files and pipes, so they are discarded only on a
     * terminal. */
    if (mode == CMN_REPORT_QUIET || (mode == CMN_REPORT_TABLE && r->watched)) {
        discard_darknet(r);
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

void cmn_report_row(struct cmn_report *r, const struct cmn_row *full)
{
    const struct cmn_row own = cmn_row_for(full, r->plan.answer), *row = &own;
    struct cmn_straggler straggler;

    cmn_straggler_find(row->rank, row->ranks, row->steps, &straggler);
    if (r->out) {
        cmn_report_clear(r);
        if (r->rows++ == 0) {
            cmn_table_heading(r->out, r->plan.answer);
        }
        cmn_table_row(r->out, r->plan.answer, row);
        if (row->ranks > 0 && (straggler.uneven || r->plan.mode == CMN_REPORT_LINES)) {
            cmn_ranks_line(r->out, row->rank, row->ranks, row->steps, &straggler);
        }
        fflush(r->out);
    }
    cmn_report_clear(r);
    if (r->tensorboard) {
        cmn_tensorboard_row(r->tensorboard, row);
    }
    cmn_json_log_row(r->json, row, &straggler);
    cmn_redraw_row(&r->chart);
    if (r->sync_error && !r->sync_said++) {
        cmn_warn("%s: rows are not known to be on the disk: %s", r->plan.json,
                 strerror(r->sync_error));
    }
}

void cmn_report_progress(struct cmn_report *r, long iteration, double epoch, double images_per_s)
{
    char bar[BAR + 1];
    double time = cmn_clock();
    long todo = r->plan.total - iteration;
    char left[64];
    int filled;

    if (!r->out || !r->watched || r->plan.mode != CMN_REPORT_TABLE || time - r->drawn < 0.1) {
        return;
    }
    r->drawn = time;
    if (r->plan.total <= 0 || todo < 0) {
        fprintf(r->out, "\riteration %ld  epoch %.2f  %.0f images/s\033[K", iteration, epoch,
                images_per_s);
    } else {
        filled = (int)(iteration * BAR / r->plan.total);
        memset(bar, ' ', BAR);
        memset(bar, '#', (size_t)filled);
        bar[BAR] = '\0';
        cmn_duration((time - r->started) / (double)(iteration - r->plan.first) * (double)todo, left,
                     sizeof left);
        fprintf(r->out,
                "\r[%s] %3ld %%  iteration %ld/%ld  epoch %.2f  %.0f images/s  ETA %s\033[K", bar,
                iteration * 100 / r->plan.total, iteration, r->plan.total, epoch, images_per_s,
                left);
    }
    r->bar_drawn = 1;
    fflush(r->out);
}

void cmn_report_sync(struct cmn_report *r)
{
    if (r &&
        (cmn_json_log_sync(r->json) || (r->tensorboard && cmn_tensorboard_sync(r->tensorboard)))) {
        r->sync_error = errno;
    }
}

/* Keeps the first failure's reason in `why`, and warns about each later failure. */
static void note(int result, char *why, size_t bytes)
{
    if (result && !why[0]) {
        snprintf(why, bytes, "%s", cmn_reason());
    } else if (result) {
        cmn_warn("%s", cmn_reason());
    }
}

int cmn_report_close(struct cmn_report *r)
{
    char why[1024] = "";

    if (!r) {
        return 0;
    }
    if (r->out) {
        cmn_report_clear(r);
        fflush(r->out);
    }
    note(cmn_json_log_close(r->json), why, sizeof why);
    cmn_redraw_finish(&r->chart);
    note(cmn_tensorboard_close(r->tensorboard), why, sizeof why);
    if (r->out && r->out != stdout) {
        fclose(r->out);
    }
    if (r->saved >= 0) {
        fflush(stdout);
        dup2(r->saved, STDOUT_FILENO);
        close(r->saved);
    }
    free(r);
    return why[0] ? cmn_fail("%s", why) : 0;
}
