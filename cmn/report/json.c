#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "log.h"
#include "report/report.h"

/* The file is an array at every moment: a row is written over the array's end, with a new end. */
static const char array_end[] = "\n]\n";

struct cmn_json {
    FILE *out;
    char *file;
    int rows;
};

struct cmn_json *cmn_json_open(const char *file)
{
    struct cmn_json *j = calloc(1, sizeof *j);

    if (!j || !(j->file = strdup(file))) {
        cmn_json_close(j);
        cmn_fail("JSON log: out of memory");
        return NULL;
    }
    j->out = fopen(file, "w");
    if (!j->out || fprintf(j->out, "[%s", array_end) < 0 || fflush(j->out)) {
        cmn_fail("JSON log %s: %s", file, strerror(errno));
        cmn_json_close(j);
        return NULL;
    }
    return j;
}

/* Seven digits: what a float holds, and what people can read. */
static void number(cJSON *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.7g", value);
    cJSON_AddNumberToObject(object, name, strtod(text, NULL));
}

static int append(struct cmn_json *j, const char *row)
{
    if (fseek(j->out, 1 - (long)sizeof array_end, SEEK_END) ||
        fprintf(j->out, "%s\n%s%s", j->rows ? "," : "", row, array_end) < 0 || fflush(j->out)) {
        return cmn_fail("JSON log %s: %s", j->file, strerror(errno));
    }
    j->rows++;
    return 0;
}

int cmn_json_row(struct cmn_json *j, const struct cmn_row *row)
{
    cJSON *object = cJSON_CreateObject();
    char *text;
    int result;

    if (!object) {
        return cmn_fail("JSON log: out of memory");
    }
    number(object, "epoch", row->epoch);
    number(object, "iteration", (double)row->iteration);
    number(object, "main/loss", row->loss);
    if (row->validation_loss >= 0) {
        number(object, "validation/main/loss", row->validation_loss);
    }
    if (row->accuracy >= 0) {
        number(object, "main/accuracy", row->accuracy);
    }
    if (row->validation_loss >= 0) {
        number(object, "validation/main/accuracy", row->validation_accuracy);
    }
    number(object, "lr", row->lr);
    number(object, "images/s", row->images_per_s);
    number(object, "elapsed_time", row->elapsed);
    number(object, "share/compute", row->compute);
    number(object, "share/exchange", row->exchange);
    number(object, "share/load", row->load);
    text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (!text) {
        return cmn_fail("JSON log: out of memory");
    }
    result = append(j, text);
    free(text);
    return result;
}

void cmn_json_close(struct cmn_json *j)
{
    if (!j) {
        return;
    }
    if (j->out) {
        fclose(j->out);
    }
    free(j->file);
    free(j);
}
