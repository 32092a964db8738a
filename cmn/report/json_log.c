#include "report/json_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/atomic_file.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/backlog.h"

/* One write() overwrites the array's end with a row and a new end, so the file is a complete array
 * at every moment. */
static const char array_end[] = "\n]\n";

static const char blank[] = " \t\r\n";

struct cmn_json_log {
    struct cmn_backlog log; /* the first member: append() finds the rest by it */
    int rows;
    int torn;  /* a part of a row lies behind `end`, where the array's end belongs */
    off_t end; /* valid if torn */
};

/* The state of reading a log row by row, which also finds the rows before a torn end. */
struct scan {
    char *text; /* the whole file, owned; NULL: there is none to read */
    size_t bytes;
    const char *at; /* end of the last row read, or of the array's opening bracket */
    int rows;
    int whole; /* the array's end was found, with nothing behind it */
};

/* Reads the file into *s. 0: its text begins an array; 1: it does not, or the file is missing or
 * not a regular one; -1 with a reason. */
static int scan_open(struct scan *s, const char *file)
{
    struct stat st;
    FILE *in = NULL;
    int result = 1;

    memset(s, 0, sizeof *s);
    /* Files in /dev do not count: a shell may have redirected /dev/stdout to a regular file. */
    if (!strncmp(file, "/dev/", 5) || stat(file, &st) || !S_ISREG(st.st_mode)) {
        return 1;
    }
    in = fopen(file, "r");
    s->bytes = (size_t)st.st_size;
    s->text = in ? cmn_calloc(s->bytes + 1, 1) : NULL;
    if (!in || fread(s->text, 1, s->bytes, in) != s->bytes) {
        result = cmn_fail("JSON log %s: cannot be read: %s", file, strerror(errno ? errno : EIO));
    } else {
        s->at = s->text + strspn(s->text, blank);
        result = *s->at++ != '[';
    }
    if (in) {
        fclose(in);
    }
    return result;
}

static void scan_close(struct scan *s)
{
    free(s->text);
    s->text = NULL;
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* Returns the next row, which the caller deletes; NULL: no complete row is left. */
static cJSON *scan_row(struct scan *s)
{
    const char *from = s->at + strspn(s->at, blank), *end = NULL;
    cJSON *row;

    if (*from == ']') {
        from += 1 + strspn(from + 1, blank);
        s->whole = from == s->text + s->bytes;
        return NULL;
    }
    if (s->rows && *from++ != ',') {
        return NULL;
    }
    row = cJSON_ParseWithLengthOpts(from, s->bytes + 1 - (size_t)(from - s->text), &end, 0);
    if (!(number_of(row, "iteration") > 0)) {
        cJSON_Delete(row);
        return NULL;
    }
    s->at = end;
    s->rows++;
    return row;
}

/* Returns whether an array without a complete row is a log: it is empty, or torn in its first
 * row. */
static int is_beginning(const struct scan *s)
{
    static const char first[] = "{\"epoch\":";
    const char *from = s->at + strspn(s->at, blank);
    size_t left = s->bytes - (size_t)(from - s->text);

    return s->whole || !strncmp(from, first, left < sizeof first - 1 ? left : sizeof first - 1);
}

int cmn_json_log_replaceable(const char *file)
{
    struct scan s;
    int result = scan_open(&s, file);
    cJSON *row = result ? NULL : scan_row(&s);
    int empty = s.text && strspn(s.text, blank) == s.bytes;
    int fd = s.text ? cmn_open_in_place("JSON log", file, O_WRONLY) : -1;

    if (s.text && fd < 0) {
        result = -1;
    } else if (result >= 0 && s.text && !empty && !row && (result || !is_beginning(&s))) {
        result = cmn_fail(
            "JSON log %s: the file is no JSON log, and would be overwritten: move it away, "
            "or give another name",
            file);
    }
    if (fd >= 0) {
        close(fd);
    }
    cJSON_Delete(row);
    scan_close(&s);
    return result < 0 ? -1 : 0;
}

/* Cuts off the torn row and writes the array's end again. 0, or -1 with errno. */
static int restore_end(struct cmn_json_log *j)
{
    const size_t closing = sizeof array_end - 1;

    errno = 0;
    if (ftruncate(j->log.fd, j->end) ||
        pwrite(j->log.fd, array_end, closing, j->end) != (ssize_t)closing) {
        errno = errno ? errno : ENOSPC;
        return -1;
    }
    j->torn = 0;
    return 0;
}

/* Implements cmn_backlog.append. If a full disk takes only a part of the row, that part is cut off
 * again. */
static int append(struct cmn_backlog *log, const void *row, size_t length)
{
    struct cmn_json_log *j = (struct cmn_json_log *)log;
    const size_t closing = sizeof array_end - 1;
    off_t end = j->torn ? j->end : lseek(j->log.fd, -(off_t)closing, SEEK_END);
    char *text;
    ssize_t bytes, written;
    int reason;

    if (j->torn && (restore_end(j) || lseek(j->log.fd, end, SEEK_SET) < 0)) {
        return cmn_fail("JSON log %s: %s", j->log.file, strerror(errno));
    }
    text = cmn_format("%s\n%.*s%s", j->rows ? "," : "", (int)length, (const char *)row, array_end);
    bytes = (ssize_t)strlen(text);
    written = end < 0 ? -1 : write(j->log.fd, text, (size_t)bytes);
    reason = written < 0 ? errno : ENOSPC;
    free(text);
    if (written == bytes) {
        j->rows++;
        return 0;
    }
    if (written > 0) {
        j->torn = 1;
        j->end = end;
        restore_end(j); /* if this fails, the next row tries again */
    }
    return cmn_fail("JSON log %s: %s", j->log.file, strerror(reason));
}

static void append_object(struct cmn_json_log *j, const cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);

    if (!text) {
        cmn_fatal("JSON log: out of memory");
    }
    cmn_backlog_add(&j->log, text, strlen(text));
    free(text);
}

/* Returns how many rows of an earlier run stay. *end becomes the byte at which they end. */
static int count_rows_to_keep(struct scan *s, const struct cmn_log_resume *resume, size_t *end)
{
    int keep = 0;
    cJSON *row;

    while ((row = scan_row(s))) {
        if (cmn_log_keeps(resume, number_of(row, "epoch"), number_of(row, "iteration"))) {
            keep = s->rows;
            *end = (size_t)(s->at - s->text);
        }
        cJSON_Delete(row);
    }
    return keep;
}

/* Ends the array at byte `end`. One pwrite() overwrites the rest with blanks before the file is
 * truncated, so the file is a complete array at every moment. 0, or -1 with a reason. */
static int cut(const struct cmn_json_log *j, struct scan *s, size_t end)
{
    const size_t closing = sizeof array_end - 1, rest = s->bytes - end;
    size_t bytes = rest < closing ? closing : rest;
    char *text;
    int result;

    if (rest == closing && !memcmp(s->text + end, array_end, closing)) {
        return 0;
    }
    text = cmn_malloc(bytes, 1);
    memset(text, ' ', bytes);
    memcpy(text, array_end, closing);
    result = pwrite(j->log.fd, text, bytes, (off_t)end) == (ssize_t)bytes &&
                     !ftruncate(j->log.fd, (off_t)(end + closing))
                 ? 0
                 : cmn_fail("JSON log %s: %s", j->log.file, strerror(errno ? errno : ENOSPC));
    free(text);
    return result;
}

/* Takes the lock of the file until it is closed. Returns whether another training holds it, as far
 * as this host and NFS know. Processes left by an earlier attempt of the same cmn-run do not count,
 * because cmn-run has given that attempt up. */
static int is_taken(int fd)
{
    const char *attempt = getenv("OMPI_CMN_ATTEMPT");

    return flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK && !(attempt && atol(attempt) > 1);
}

static int begin(struct cmn_json_log *j, struct scan *s, size_t end)
{
    j->log.fd = cmn_open_in_place("JSON log", j->log.file, O_WRONLY | O_CREAT);
    if (j->log.fd < 0) {
        return -1;
    }
    if (is_taken(j->log.fd)) {
        return cmn_fail("JSON log %s: another training writes it: wait until that has ended, or "
                        "give this one another cmn_json",
                        j->log.file);
    }
    errno = 0;
    if (j->rows) {
        return cut(j, s, end);
    }
    return (ftruncate(j->log.fd, 0) && errno != EINVAL) || dprintf(j->log.fd, "[%s", array_end) < 0
               ? cmn_fail("JSON log %s: %s", j->log.file, strerror(errno))
               : 0;
}

struct cmn_json_log *cmn_json_log_open(const char *file, const struct cmn_log_resume *resume)
{
    struct cmn_json_log *j = cmn_calloc(1, sizeof *j);
    struct scan s = {.text = NULL};
    size_t end = 0;
    int result = -1;

    j->log = (struct cmn_backlog){.append = append, .file = cmn_strdup(file), .fd = -1};
    if (cmn_json_log_replaceable(file)) {
        goto out;
    }
    if (cmn_log_resumes(resume)) {
        result = scan_open(&s, file);
        j->rows = result ? 0 : count_rows_to_keep(&s, resume, &end);
        if (!result && !s.whole) {
            cmn_warn("JSON log %s: its end is torn (a full disk, or a kill): %d of %d whole rows "
                     "are kept",
                     file, j->rows, s.rows);
        }
    }
    result = begin(j, &s, end);
out:
    scan_close(&s);
    if (result) {
        cmn_json_log_close(j);
        j = NULL;
    }
    return j;
}

static void number(cJSON *object, const char *name, double value)
{
    cJSON_AddNumberToObject(object, name, cmn_log_number(value));
}

/* Adds a number that the log has only if it is not 0. */
static void count(cJSON *object, const char *name, long value)
{
    if (value) {
        number(object, name, (double)value);
    }
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

void cmn_json_log_row(struct cmn_json_log *j, const struct cmn_row *row,
                      const struct cmn_straggler *s)
{
    cJSON *object = cJSON_CreateObject();
    const struct cmn_column *column;

    for (int i = 0; (column = cmn_column_at(i)); i++) {
        if (cmn_column_known(column, row)) {
            number(object, column->name, cmn_column_get(column, row));
        }
    }
    count(object, "skipped_steps", row->skipped);
    count(object, "clipped_steps", row->clipped);
    add_ranks(object, row, s);
    append_object(j, object);
    cJSON_Delete(object);
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

int cmn_json_log_read(const char *file, int (*each)(void *to, const struct cmn_row *row), void *to)
{
    struct scan s;
    cJSON *object = NULL;
    int result = scan_open(&s, file);

    while (!result && (object = scan_row(&s))) {
        struct cmn_row row = row_of(object);
        cJSON_Delete(object);
        result = each(to, &row);
    }
    /* A torn end is not an error: a training may be writing its next row. */
    if (result > 0 || (!result && !s.rows && !is_beginning(&s))) {
        result = cmn_fail("%s: cannot be read as a JSON log of a training", file);
    }
    scan_close(&s);
    return result;
}

int cmn_json_log_sync(const struct cmn_json_log *j)
{
    return cmn_sync_in_place(j->log.fd);
}

int cmn_json_log_close(struct cmn_json_log *j)
{
    int result = j ? cmn_backlog_close(&j->log) : 0;

    free(j);
    return result;
}
