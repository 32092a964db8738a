#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "aside.h"
#include "log.h"
#include "report/report.h"

/* The file is an array at every moment: a row is written over the array's end, with a new end. */
static const char array_end[] = "\n]\n";

struct cmn_json {
    FILE *out;
    char *file;
    int rows;
};

/* The array that a log is; NULL: it is none, or cannot be read. */
static cJSON *parse(const char *file)
{
    struct stat st;
    FILE *in = fopen(file, "r");
    char *text = NULL;
    cJSON *rows = NULL;

    if (in && !fstat(fileno(in), &st) && S_ISREG(st.st_mode)) {
        text = calloc(1, (size_t)st.st_size + 1);
    }
    if (text && fread(text, 1, (size_t)st.st_size, in) == (size_t)st.st_size) {
        rows = cJSON_Parse(text);
    }
    if (in) {
        fclose(in);
    }
    free(text);
    return rows;
}

/* The rows of an older log up to iteration `first`; what is no such log has none. */
static cJSON *older_rows(const char *file, long first)
{
    cJSON *rows = first > 0 ? parse(file) : NULL;

    for (int i = cJSON_GetArraySize(rows) - 1; i >= 0; i--) {
        const cJSON *iteration =
            cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(rows, i), "iteration");
        if (!cJSON_IsNumber(iteration) || iteration->valuedouble > (double)first) {
            cJSON_DeleteItemFromArray(rows, i);
        }
    }
    return rows;
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

static int append_object(struct cmn_json *j, const cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    int result = text ? append(j, text) : cmn_fail("JSON log: out of memory");

    free(text);
    return result;
}

struct cmn_json *cmn_json_open(const char *file, long first)
{
    struct cmn_json *j = calloc(1, sizeof *j);
    cJSON *older = older_rows(file, first);
    int result = -1, fd;

    if (!j || !(j->file = strdup(file))) {
        cmn_fail("JSON log: out of memory");
        goto out;
    }
    fd = cmn_aside_in_place("JSON log", file, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) {
        goto out;
    }
    j->out = fdopen(fd, "w");
    if (!j->out || fprintf(j->out, "[%s", array_end) < 0 || fflush(j->out)) {
        cmn_fail("JSON log %s: %s", file, strerror(errno));
        goto out;
    }
    result = 0;
    for (const cJSON *row = older ? older->child : NULL; row && !result; row = row->next) {
        result = append_object(j, row);
    }
out:
    cJSON_Delete(older);
    if (result) {
        cmn_json_close(j);
        j = NULL;
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

static void add_ranks(cJSON *object, const struct cmn_row *row, const struct cmn_straggler *s)
{
    cJSON *ranks = row->ranks ? cJSON_AddArrayToObject(object, "ranks") : NULL;
    cJSON *late = s->rank >= 0 ? cJSON_AddObjectToObject(object, "straggler") : NULL;

    for (int i = 0; ranks && i < row->ranks; i++) {
        cJSON *rank = cJSON_CreateObject();
        number(rank, "rank", i);
        cJSON_AddStringToObject(rank, "host", row->rank[i].host);
        number(rank, "compute", row->rank[i].compute);
        number(rank, "load", row->rank[i].load);
        number(rank, "wait", row->rank[i].wait);
        cJSON_AddItemToArray(ranks, rank);
    }
    if (late) {
        number(late, "rank", s->rank);
        cJSON_AddStringToObject(late, "host", row->rank[s->rank].host);
        cJSON_AddStringToObject(late, "by", s->by);
    }
}

int cmn_json_row(struct cmn_json *j, const struct cmn_row *row, const struct cmn_straggler *s)
{
    cJSON *object = cJSON_CreateObject();
    const struct cmn_column *column;
    int result;

    if (!object) {
        return cmn_fail("JSON log: out of memory");
    }
    for (int i = 0; (column = cmn_column_at(i)); i++) {
        if (cmn_column_known(column, row)) {
            number(object, column->name, cmn_column_get(column, row));
        }
    }
    if (row->skipped) {
        number(object, "skipped_steps", (double)row->skipped);
    }
    add_ranks(object, row, s);
    result = append_object(j, object);
    cJSON_Delete(object);
    return result;
}

static struct cmn_row row_of(const cJSON *object)
{
    const struct cmn_column *column;
    struct cmn_row row = {0};

    for (int i = 0; (column = cmn_column_at(i)); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, column->name);
        double none = column->optional ? -1 : 0;
        cmn_column_set(column, &row,
                       cJSON_IsNumber(item) ? item->valuedouble
                       : cJSON_IsNull(item) ? (double)NAN
                                            : none);
    }
    return row;
}

int cmn_json_read(const char *file, int (*each)(void *to, const struct cmn_row *row), void *to)
{
    cJSON *rows = parse(file);
    int result = 0;

    if (!cJSON_IsArray(rows)) {
        cJSON_Delete(rows);
        return cmn_fail("%s: cannot be read as a JSON log of a training", file);
    }
    for (const cJSON *object = rows->child; object && !result; object = object->next) {
        struct cmn_row row = row_of(object);
        result = each(to, &row);
    }
    cJSON_Delete(rows);
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
