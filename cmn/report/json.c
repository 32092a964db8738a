#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "log.h"
#include "report/report.h"

struct cmn_json {
    cJSON *rows;
    char *file, *next;    /* next: the temporary name */
};

struct cmn_json *cmn_json_open(const char *file)
{
    struct cmn_json *j = calloc(1, sizeof *j);
    size_t bytes = strlen(file) + 5;

    if (j) {
        j->rows = cJSON_CreateArray();
        j->file = strdup(file);
        j->next = malloc(bytes);
    }
    if (!j || !j->rows || !j->file || !j->next) {
        cmn_json_close(j);
        cmn_fail("JSON log: out of memory");
        return NULL;
    }
    snprintf(j->next, bytes, "%s.new", file);
    return j;
}

/* Seven digits: what a float holds, and what people can read. */
static void number(cJSON *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.7g", value);
    cJSON_AddNumberToObject(object, name, strtod(text, NULL));
}

static int replace(const struct cmn_json *j, const char *text)
{
    FILE *file = fopen(j->next, "w");
    int good;

    if (!file) {
        return -1;
    }
    good = fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    good = fclose(file) == 0 && good;
    return good && rename(j->next, j->file) == 0 ? 0 : -1;
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
    cJSON_AddItemToArray(j->rows, object);
    text = cJSON_Print(j->rows);
    if (!text) {
        return cmn_fail("JSON log: out of memory");
    }
    result = replace(j, text);
    free(text);
    return result ? cmn_fail("JSON log %s: %s", j->file, strerror(errno)) : 0;
}

void cmn_json_close(struct cmn_json *j)
{
    if (!j) {
        return;
    }
    cJSON_Delete(j->rows);
    free(j->file);
    free(j->next);
    free(j);
}
