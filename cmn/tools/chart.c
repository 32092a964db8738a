/* `darknet cmn chart`: draws a training's JSON log. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "report/chart.h"
#include "report/json_log.h"
#include "tools/tool.h"

/* What the rows of a log tell about the command that wrote it. */
struct summary {
    enum cmn_answer answer;
    long rows;
};

static int summarise(void *to, const struct cmn_row *row)
{
    struct summary *log = to;

    log->rows++;
    if (!(row->validation_map < 0)) {
        log->answer = CMN_BOXES;
    } else if (log->answer == CMN_NO_ANSWER &&
               !(row->accuracy < 0 && row->validation_accuracy < 0)) {
        log->answer = CMN_CLASSES;
    }
    return 0;
}

static int add(void *to, const struct cmn_row *row)
{
    cmn_chart_add(to, row);
    return 0;
}

/* The title: logs are named after their training. */
static void name_of(const char *log, char *title, size_t bytes)
{
    const char *slash = strrchr(log, '/');
    char *dot;

    snprintf(title, bytes, "%s", slash ? slash + 1 : log);
    dot = strrchr(title, '.');
    if (dot && dot > title) {
        *dot = '\0';
    }
}

static int draw(const char *log, const char *picture)
{
    struct summary summary = {CMN_NO_ANSWER, 0};
    char title[256];
    struct cmn_chart_plan plan = {.title = title};
    struct cmn_chart *chart;
    int result;

    name_of(log, title, sizeof title);
    if (cmn_json_log_read(log, summarise, &summary)) {
        return -1;
    }
    if (!summary.rows) {
        return cmn_fail("%s holds no row", log);
    }
    plan.answer = summary.answer;
    chart = cmn_chart_open(picture, &plan);
    if (!chart) {
        return -1;
    }
    result = cmn_json_log_read(log, add, chart) || cmn_chart_finish(chart) ? -1 : 0;
    cmn_chart_close(chart);
    return result;
}

int cmn_tool_chart(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: darknet cmn chart LOG.json PICTURE.png\n");
        return 1;
    }
    if (!strcmp(argv[1], argv[2])) {
        fprintf(stderr, "darknet cmn chart: log and picture are the same file, %s\n", argv[1]);
        return 1;
    }
    if (draw(argv[1], argv[2])) {
        fprintf(stderr, "darknet cmn chart: %s\n", cmn_reason());
        return 1;
    }
    return 0;
}
