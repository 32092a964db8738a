#include "report/chart.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/files.h"
#include "report/json_log.h"

/* ---- the script ---- */

/* The colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008): colour-blind
 * readers can tell them apart. The curves of a panel also differ in their points. */
#define BLUE "#0072B2"
#define ORANGE "#D55E00"
#define PINK "#CC79A7"
#define GREEN "#009E73"
#define GREY "#555555"

/* A curve of at most this many values is drawn with points. */
enum { FEW = 40 };

struct curve {
    size_t at;                  /* offset of a double in struct cmn_row */
    const char *title, *colour; /* title "": the panel's title shows the value, not a legend */
    int point;                  /* gnuplot's pointtype */
    double scale;
    int best;           /* extreme that the legend adds: 1: largest, -1: smallest, 0: none */
    const char *format; /* of values in the legend */
};

#define AT(field) offsetof(struct cmn_row, field)

struct panel {
    const char *title;
    enum cmn_answer answer; /* kind of command that has the panel; CMN_NO_ANSWER: all kinds */
    double left, right, bottom, top;
    double most;     /* upper end of the y axis; 0: the data decide */
    int logs;        /* the y axis may be logarithmic */
    const char *key; /* place of the legend */
    struct curve curve[2];
};

/* clang-format off */
/* Places of the panels in fractions of the picture: left and right, or bottom and top. */
#define LEFT 0.075, 0.485
#define RIGHT 0.565, 0.975
#define UPPER 0.47, 0.865
#define LOWER 0.085, 0.37

static const struct panel panels[] = {
    {"loss",
     CMN_NO_ANSWER, LEFT, UPPER, 0, 1, "top right",
     {{AT(loss), "training", BLUE, 7, 1, 0, "%.4g"},
      {AT(validation_loss), "validation", ORANGE, 5, 1, -1, "%.4g"}}},
    {"accuracy, %",
     CMN_CLASSES, RIGHT, UPPER, 100, 0, "bottom right",
     {{AT(accuracy), "training", BLUE, 7, 100, 0, "%.2f"},
      {AT(validation_accuracy), "validation", ORANGE, 5, 100, 1, "%.2f"}}},
    {"mAP on the validation list, %",
     CMN_BOXES, RIGHT, UPPER, 100, 0, "bottom right",
     {{AT(validation_map), "IoU 0.5", ORANGE, 5, 100, 1, "%.1f"},
      {AT(validation_map95), "IoU 0.5 to 0.95", PINK, 9, 100, 1, "%.1f"}}},
    {"learning rate",
     CMN_NO_ANSWER, LEFT, LOWER, 0, 1, "top right",
     {{AT(lr), "", GREY, 7, 1, 0, "%.4g"}}},
    {"images/s",
     CMN_NO_ANSWER, RIGHT, LOWER, 0, 0, "bottom right",
     {{AT(images_per_s), "", GREEN, 7, 1, 0, "%.0f"}}},
};
/* clang-format on */

enum { PANELS = sizeof panels / sizeof panels[0], CURVES = 2 };

static double value_at(const struct curve *c, const struct cmn_row *row)
{
    const char *field = (const char *)row + c->at;
    double value = *(const double *)(const void *)field;

    /* A negative value means "unknown". */
    return value < 0 || !isfinite(value) ? NAN : value * c->scale;
}

struct range {
    int n;
    double least, most, last;
};

/* Writes the values of a curve as gnuplot's data block $curve0 or $curve1. Returns their range. */
static struct range write_values(const struct curve *c, int number, const struct cmn_chart *s,
                                 FILE *out)
{
    struct range r = {0, HUGE_VAL, 0, 0};

    fprintf(out, "$curve%d << END_OF_VALUES\n", number);
    for (int i = 0; i < s->rows && c->title; i++) {
        double value = value_at(c, &s->row[i]);
        if (!isnan(value)) {
            fprintf(out, "%ld %.7g\n", s->row[i].iteration, value);
            r.n++;
            r.least = fmin(r.least, value);
            r.most = fmax(r.most, value);
            r.last = value;
        }
    }
    fprintf(out, "END_OF_VALUES\n");
    return r;
}

/* Writes the text as a string of gnuplot in single quotes, where a quote is doubled. */
static void quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text; text++) {
        if (*text == '\'') {
            putc('\'', out);
        }
        putc((unsigned char)*text < ' ' ? '?' : *text, out);
    }
    putc('\'', out);
}

/* Sets the y axis of a panel. It is logarithmic where a panel allows that and its values span more
 * than a factor of 30: burn_in raises the rate from almost zero, and the loss may fall by orders of
 * magnitude. */
static void axis(const struct panel *p, const struct range range[CURVES], FILE *out)
{
    double least = fmin(range[0].least, range[1].least);
    double most = fmax(range[0].most, range[1].most);

    if (p->logs && least > 0 && most / least > 30) {
        fprintf(out, "set logscale y\nset format y '%%g'\nset yrange [%.6g:%.6g]\n",
                fmax(least, most * 1e-5) / 1.5, most * 1.5);
        return;
    }
    fprintf(out, "unset logscale y\nset format y '%%g'\n");
    if (p->most > 0) {
        fprintf(out, "set yrange [%.6g:%g]\n", fmax(0, least - 0.1 * (p->most - least)), p->most);
    } else {
        fprintf(out, "set yrange [0:%.6g]\n", most > 0 ? most * 1.1 : 1);
    }
}

/* Writes the text of the legend: the curve's title, its latest value and its best one. */
static void name_curve(const struct curve *c, const struct range *r, char *text, size_t bytes)
{
    char last[32], best[32], extreme[48] = "";

    snprintf(last, sizeof last, c->format, r->last);
    snprintf(best, sizeof best, c->format, c->best > 0 ? r->most : r->least);
    if (c->best && r->n > 1) {
        snprintf(extreme, sizeof extreme, " (%s %s)", c->best > 0 ? "best" : "least", best);
    }
    snprintf(text, bytes, "%s: %s%s", c->title, last, extreme);
}

static void draw_curve(const struct curve *c, int number, const struct range *r, FILE *out)
{
    char name[128];

    name_curve(c, r, name, sizeof name);
    fprintf(out, "$curve%d with %s linecolor '%s' linewidth 2 pointtype %d pointsize 0.7", number,
            r->n <= FEW ? "linespoints" : "lines", c->colour, c->point);
    fprintf(out, " title ");
    quoted(out, c->title[0] ? name : "");
}

static void draw(const struct panel *p, const struct cmn_chart *s, int wide, FILE *out)
{
    struct range range[CURVES];
    const char *separator = "plot ";
    char title[128], value[64] = "";

    for (int i = 0; i < CURVES; i++) {
        range[i] = write_values(&p->curve[i], i, s, out);
    }
    fprintf(out,
            "set lmargin at screen %g\nset rmargin at screen %g\n"
            "set bmargin at screen %g\nset tmargin at screen %g\n",
            p->left, wide ? 0.975 : p->right, p->bottom, p->top);
    /* The only curve of a panel needs no legend: the panel's title shows its value. */
    if (range[0].n && !p->curve[0].title[0]) {
        name_curve(&p->curve[0], &range[0], value, sizeof value);
    }
    snprintf(title, sizeof title, "%s%s", p->title, value);
    fprintf(out, "set title ");
    quoted(out, title);
    fprintf(out, " font ',12' textcolor '#222222'\nset key %s\n", p->key);
    if (!range[0].n && !range[1].n) {
        fprintf(out, "unset logscale y\nset yrange [0:1]\nset format y ''\n"
                     "set label 9 'none yet' at graph 0.5, graph 0.5 center textcolor '#888888'\n"
                     "plot -1 notitle\nunset label 9\n");
        return;
    }
    axis(p, range, out);
    for (int i = 0; i < CURVES; i++) {
        if (range[i].n) {
            fputs(separator, out);
            draw_curve(&p->curve[i], i, &range[i], out);
            separator = ", \\\n     ";
        }
    }
    putc('\n', out);
}

static void heading(const struct cmn_chart *s, FILE *out)
{
    const struct cmn_row *last = &s->row[s->rows - 1];
    char text[160];
    size_t used;

    fprintf(out, "set label 1 ");
    quoted(out, s->title);
    fprintf(out, " at screen 0.03, screen 0.955 left font ',15' textcolor '#222222'\n");
    used = (size_t)snprintf(text, sizeof text, "iteration %ld", last->iteration);
    if (last->epoch > 0) {
        snprintf(text + used, sizeof text - used, ", epoch %.2f", last->epoch);
    }
    fprintf(out, "set label 2 ");
    quoted(out, text);
    fprintf(out, " at screen 0.975, screen 0.955 right font ',11' textcolor '#555555'\n");
}

/* Sets the x axis. It begins at iteration 0, unless more iterations lie before the first row than
 * between the first row and the last. */
static void iterations(const struct cmn_chart *s, FILE *out)
{
    long first = s->row[0].iteration, last = s->row[s->rows - 1].iteration;

    fprintf(out, "set xrange [%ld:%ld]\n", first > last - first && last > first ? first : 0,
            last > 0 ? last : 1);
}

void cmn_chart_script(const struct cmn_chart *s, FILE *out)
{
    int drawn = 0;

    /* noenhanced: gnuplot must not read file names as markup. */
    fprintf(out, "set terminal pngcairo size 1000,700 noenhanced font 'DejaVu Sans,10' "
                 "background '#ffffff'\n");
    fprintf(out, "set encoding utf8\nset multiplot\n"
                 "set border 3 linecolor '#888888'\n"
                 "set tics nomirror scale 0.5 textcolor '#333333'\n"
                 "set grid linecolor '#dddddd' linewidth 1 linetype 1\n"
                 "set key reverse Left samplen 2 textcolor '#333333'\n"
                 "set format x '%%.10g'\n");
    iterations(s, out);
    heading(s, out);
    for (int i = 0; i < PANELS; i++) {
        if (panels[i].answer != CMN_NO_ANSWER && panels[i].answer != s->answer) {
            continue;
        }
        if (panels[i].bottom < 0.2) {
            fprintf(out, "set xlabel 'iteration' textcolor '#333333'\n");
        }
        draw(&panels[i], s, i == 0 && s->answer == CMN_NO_ANSWER, out);
        if (!drawn++) {
            fprintf(out, "unset label 1\nunset label 2\n");
        }
    }
    fprintf(out, "unset multiplot\n");
}

/* ---- the rows of a log ---- */

struct log {
    struct cmn_row *row;
    int rows, room;
    enum cmn_answer answer; /* of the command that wrote the log, guessed from its rows */
};

static int add(void *to, const struct cmn_row *row)
{
    struct log *log = to;

    if (log->rows == log->room) {
        log->room = 2 * log->room + 256;
        log->row = cmn_realloc(log->row, (size_t)log->room, sizeof *log->row);
    }
    log->row[log->rows++] = *row;
    if (!(row->validation_map < 0)) {
        log->answer = CMN_BOXES;
    } else if (log->answer == CMN_NO_ANSWER &&
               !(row->accuracy < 0 && row->validation_accuracy < 0)) {
        log->answer = CMN_CLASSES;
    }
    return 0;
}

/* The chart's title is the log's file name without folder and extension. */
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

/* ---- gnuplot ---- */

/* Finds gnuplot in PATH. Relative folders are skipped: the current folder may belong to somebody
 * else. 0, or a value of errno. */
static int find(char *program, size_t bytes)
{
    const char *at = getenv("PATH");

    for (at = at ? at : "/usr/bin:/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        int length = (int)strcspn(at, ":");
        if (at[0] == '/' && snprintf(program, bytes, "%.*s/gnuplot", length, at) < (int)bytes &&
            !access(program, X_OK)) {
            return 0;
        }
    }
    return ENOENT;
}

/* Removes the variables GNU*, which can make gnuplot run programs and read files. */
static void clean_environment(void)
{
    for (char **variable = environ; *variable;) {
        char *name = cmn_strdup(*variable);
        const char *before = *variable;
        name[strcspn(name, "=")] = '\0';
        if (strncmp(name, "GNU", 3) || unsetenv(name) || *variable == before) {
            variable++;
        }
        free(name);
    }
}

/* Returns -1; the reason is the first line of gnuplot's standard error that is not blank and not
 * the "^" that points at an error. */
static int complain(const char *picture, int errors)
{
    char text[512];
    ssize_t n = pread(errors, text, sizeof text - 1, 0);
    char *line = text;

    text[n > 0 ? n : 0] = '\0';
    while (*line) {
        size_t length = strcspn(line, "\n");
        size_t blank = strspn(line, " ^\t\r");
        if (blank < length) {
            line[length] = '\0';
            return cmn_fail("chart %s: gnuplot says: %s", picture, line + blank);
        }
        line += length + (line[length] != '\0');
    }
    return cmn_fail("chart %s: gnuplot failed without a message", picture);
}

/* Runs gnuplot without a shell and waits for its end, polling every 5 ms. 0, or -1 with a
 * reason. */
static int run(const char *picture, int in, int out, int errors)
{
    static char name[] = "gnuplot", no_own_settings[] = "-d";
    enum { SECONDS = 30 }; /* the first picture on a machine may have to build the font cache */
    char *argv[] = {name, no_own_settings, NULL}, program[4096];
    const struct timespec while_waiting = {0, 5000000};
    double began = cmn_clock();
    posix_spawn_file_actions_t actions;
    int reason = find(program, sizeof program), status = 0;
    pid_t pid = 0;

    clean_environment();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    reason = reason ? reason : posix_spawn(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (reason) {
        return cmn_fail("chart %s: gnuplot: %s", picture, strerror(reason));
    }
    while (!waitpid(pid, &status, WNOHANG)) {
        if (cmn_clock() - began > SECONDS) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            return cmn_fail("chart %s: gnuplot did not end within %d s", picture, SECONDS);
        }
        nanosleep(&while_waiting, NULL);
    }
    return status ? complain(picture, errors) : 0;
}

/* Every PNG ends with this chunk: its length 0, its name and its checksum. */
static const unsigned char end[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};

/* A chart ends with a text chunk, "Software" and "darknet-cmn", before the end of the PNG. Only a
 * picture with this end may be replaced. */
static const unsigned char own_end[] = {0,   0,   0,   20,  't', 'E', 'X',  't',  'S',  'o',  'f',
                                        't', 'w', 'a', 'r', 'e', 0,   'd',  'a',  'r',  'k',  'n',
                                        'e', 't', '-', 'c', 'm', 'n', 0x1e, 0x0b, 0x39, 0x99, 0,
                                        0,   0,   0,   'I', 'E', 'N', 'D',  0xae, 0x42, 0x60, 0x82};

/* Returns whether the PNG is complete: gnuplot does not always report a full disk. */
static int whole(int file)
{
    unsigned char last[sizeof end] = "";
    off_t bytes = lseek(file, 0, SEEK_END);

    return bytes > (off_t)sizeof end &&
           pread(file, last, sizeof last, bytes - (off_t)sizeof last) == sizeof last &&
           !memcmp(last, end, sizeof end);
}

/* Replaces the end of the PNG by own_end. 0, or -1 with errno. */
static int put_own_end(int file)
{
    off_t bytes = lseek(file, 0, SEEK_END) - (off_t)sizeof end;

    errno = 0;
    if (pwrite(file, own_end, sizeof own_end, bytes) == sizeof own_end) {
        return 0;
    }
    errno = errno ? errno : ENOSPC;
    return -1;
}

/* ---- the chart ---- */

int cmn_chart_check(const char *picture)
{
    char program[4096];
    struct cmn_draft draft;

    if (cmn_files_replaceable("chart", picture, "\x89PNG", own_end, sizeof own_end)) {
        return -1;
    }
    if (find(program, sizeof program)) {
        return cmn_fail("chart %s: gnuplot, which draws it, is not installed: install it (Debian: "
                        "gnuplot-nox), or remove cmn_chart",
                        picture);
    }
    if (cmn_draft_open(&draft, picture)) {
        return cmn_fail("chart %s: %s", picture, strerror(errno));
    }
    cmn_draft_drop(&draft);
    return 0;
}

/* Returns a stream over memory that holds the script, with its descriptor at the beginning; NULL
 * with errno. The caller closes it. */
static FILE *write_script(const struct cmn_chart *c)
{
    int fd = memfd_create("chart", MFD_CLOEXEC);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

    if (out) {
        cmn_chart_script(c, out);
        if (fflush(out) || ferror(out) || lseek(fd, 0, SEEK_SET)) {
            fclose(out);
            out = NULL;
        }
    }
    return out;
}

/* Draws into the draft, which then replaces the previous picture. 0, or -1 with a reason. */
static int draw_into(struct cmn_draft *d, const char *picture, FILE *script)
{
    int errors = memfd_create("chart", MFD_CLOEXEC), out = fileno(d->out), result = -1;

    if (errors < 0) {
        cmn_fail("chart %s: %s", picture, strerror(errno));
    } else if (!run(picture, fileno(script), out, errors)) {
        if (!whole(out)) {
            cmn_fail("chart %s: gnuplot wrote a part of it only: is the disk full?", picture);
        } else if (put_own_end(out) || cmn_draft_commit(d, picture)) {
            cmn_fail("chart %s: %s", picture, strerror(errno));
        } else {
            result = 0;
        }
    }
    if (errors >= 0) {
        close(errors);
    }
    return result;
}

static int make_picture(const struct cmn_chart *c, const char *picture)
{
    FILE *script = write_script(c);
    struct cmn_draft draft;
    int result;

    if (!script || cmn_draft_open(&draft, picture)) {
        result = cmn_fail("chart %s: %s", picture, strerror(errno));
    } else {
        result = draw_into(&draft, picture, script);
        cmn_draft_drop(&draft);
    }
    if (script) {
        fclose(script);
    }
    return result;
}

int cmn_chart_draw(const char *log, const char *picture)
{
    struct log rows = {.answer = CMN_NO_ANSWER};
    char title[256];
    int result = -1;

    name_of(log, title, sizeof title);
    if (!cmn_json_log_read(log, add, &rows) && !cmn_chart_check(picture)) {
        result = rows.rows
                     ? make_picture(&(struct cmn_chart){title, rows.answer, rows.row, rows.rows},
                                    picture)
                     : cmn_fail("%s holds no row", log);
    }
    free(rows.row);
    return result;
}
