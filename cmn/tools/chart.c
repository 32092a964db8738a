/* `darknet cmn chart`: draws the JSON log of a training. With cmn_chart the training starts it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "report/chart.h"
#include "tools/tool.h"

/* Releases this process from the core of the rank that started it, and lowers its priority, so that
 * it takes only time that the ranks do not use. */
static void yield_cores(void)
{
    cpu_set_t all;

    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    setpriority(PRIO_PROCESS, 0, 10);
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
    yield_cores();
    if (cmn_chart_draw(argv[1], argv[2])) {
        fprintf(stderr, "darknet cmn chart: %s\n", cmn_reason());
        return 1;
    }
    return 0;
}
