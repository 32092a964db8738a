#include "report/chart_script.h"

#include <math.h>
#include <stddef.h>

/* Colours of M. Okabe and K. Ito, "Color Universal Design" (2008): colour-blind readers can tell
 * them apart. Points differ, too. */
#define BLUE "#0072B2"
#define ORANGE "#D55E00"
#define PINK "#CC79A7"
#define GREEN "#009E73"
#define GREY "#555555"

/* Up to so many rows are marked by points. */
enum { FEW = 40 };

/* Columns of the data that the script holds, as gnuplot counts them. */
enum column { ITERATION = 1, LOSS, VALID_LOSS, ACCURACY, VALID_ACCURACY, MAP, MAP95, RATE, SPEED };

struct curve {
    enum column column;
    size_t at; /* of struct cmn_row */
    const char *title, *colour;
    int point;
    double scale;
    int best;           /* the legend says 1: the largest, -1: the smallest value, 0: neither */
    const char *format; /* of values in the legend */
};

#define AT(field) offsetof(struct cmn_row, field)

struct panel {
    const char *title;
    enum cmn_answer answer; /* of the commands that have it; CMN_NO_ANSWER: all */
    double left, right, bottom, top;
    double most; /* end of the axis; 0: by the data */
    int logs;    /* a wide range gets a logarithmic axis */
    const char *key;
    struct curve curve[2];
};

/* clang-format off */
/* Places of panels on the picture: left and right, bottom and top, 0 to 1. */
#define LEFT 0.075, 0.485
#define RIGHT 0.565, 0.975
#define UPPER 0.47, 0.865
#define LOWER 0.085, 0.37

static const struct panel panels[] = {
    {"loss",
     CMN_NO_ANSWER, LEFT, UPPER, 0, 1, "top right",
     {{LOSS, AT(loss), "training", BLUE, 7, 1, 0, "%.4g"},
      {VALID_LOSS, AT(validation_loss), "validation", ORANGE, 5, 1, -1, "%.4g"}}},
    {"accuracy, %",
     CMN_CLASSES, RIGHT, UPPER, 100, 0, "bottom right",
     {{ACCURACY, AT(accuracy), "training", BLUE, 7, 100, 0, "%.2f"},
      {VALID_ACCURACY, AT(validation_accuracy), "validation", ORANGE, 5, 100, 1, "%.2f"}}},
    {"mAP on the validation list, %",
     CMN_BOXES, RIGHT, UPPER, 100, 0, "bottom right",
     {{MAP, AT(validation_map), "IoU 0.5", ORANGE, 5, 100, 1, "%.1f"},
      {MAP95, AT(validation_map95), "IoU 0.5 to 0.95", PINK, 9, 100, 1, "%.1f"}}},
    {"learning rate",
     CMN_NO_ANSWER, LEFT, LOWER, 0, 1, "top right",
     {{RATE, AT(lr), "", GREY, 7, 1, 0, "%.4g"}}},
    {"images/s",
     CMN_NO_ANSWER, RIGHT, LOWER, 0, 0, "bottom right",
     {{SPEED, AT(images_per_s), "", GREEN, 7, 1, 0, "%.0f"}}},
};
/* clang-format on */

enum { PANELS = sizeof panels / sizeof panels[0], CURVES = 2 };

static double value_at(const struct curve *c, const struct cmn_row *row)
{
    const char *field = (const char *)row + c->at;
    double value = *(const double *)(const void *)field;

    /* Negative values are unknown ones. */
    return value < 0 || !isfinite(value) ? NAN : value * c->scale;
}

struct range {
    int n;
    double least, most, last;
};

static struct range range_of(const struct curve *c, const struct cmn_chart_rows *s)
{
    struct range r = {0, HUGE_VAL, 0, 0};

    for (int i = 0; i < s->rows && c->title; i++) {
        double value = value_at(c, &s->row[i]);
        if (!isnan(value)) {
            r.n++;
            r.least = fmin(r.least, value);
            r.most = fmax(r.most, value);
            r.last = value;
        }
    }
    return r;
}

/* In single quotes, as gnuplot reads them: a quote inside is doubled. */
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

static void data(const struct cmn_chart_plan *plan, const struct cmn_chart_rows *s, FILE *out)
{
    fprintf(out, "$rows << END_OF_ROWS\n");
    for (int i = 0; i < s->rows; i++) {
        int column = ITERATION;
        fprintf(out, "%ld", s->row[i].iteration);
        while (++column <= SPEED) {
            double value = NAN;
            for (int p = 0; p < PANELS * CURVES; p++) {
                const struct panel *panel = &panels[p / CURVES];
                const struct curve *c = &panel->curve[p % CURVES];
                if (c->title && (int)c->column == column &&
                    (panel->answer == CMN_NO_ANSWER || panel->answer == plan->answer)) {
                    value = value_at(c, &s->row[i]);
                }
            }
            fprintf(out, isnan(value) ? " nan" : " %.7g", value);
        }
        putc('\n', out);
    }
    fprintf(out, "END_OF_ROWS\n");
}

/* Logarithmic for a rate that burn_in raises from almost zero, or a loss that falls by orders of
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

/* The legend: what the curve is, its latest value and its best one. */
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

static void draw_curve(const struct curve *c, const struct range *r, FILE *out)
{
    char name[128];

    name_curve(c, r, name, sizeof name);
    fprintf(out, "$rows using 1:%d with %s linecolor '%s' linewidth 2 pointtype %d pointsize 0.7",
            (int)c->column, r->n <= FEW ? "linespoints" : "lines", c->colour, c->point);
    fprintf(out, " title ");
    quoted(out, c->title[0] ? name : "");
}

static void draw(const struct panel *p, const struct cmn_chart_rows *s, int wide, FILE *out)
{
    struct range range[CURVES] = {range_of(&p->curve[0], s), range_of(&p->curve[1], s)};
    const char *separator = "plot ";
    char title[128], value[64] = "";

    fprintf(out,
            "set lmargin at screen %g\nset rmargin at screen %g\n"
            "set bmargin at screen %g\nset tmargin at screen %g\n",
            p->left, wide ? 0.975 : p->right, p->bottom, p->top);
    /* The only curve of a panel needs no legend: its value goes into the title. */
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
            draw_curve(&p->curve[i], &range[i], out);
            separator = ", \\\n     ";
        }
    }
    putc('\n', out);
}

static void heading(const struct cmn_chart_plan *plan, const struct cmn_row *last, FILE *out)
{
    char text[160];
    size_t used;

    fprintf(out, "set label 1 ");
    quoted(out, plan->title);
    fprintf(out, " at screen 0.03, screen 0.955 left font ',15' textcolor '#222222'\n");
    used = (size_t)snprintf(text, sizeof text, "iteration %ld", last->iteration);
    if (plan->total > 0) {
        used += (size_t)snprintf(text + used, sizeof text - used, " of %ld", plan->total);
    }
    if (last->epoch > 0) {
        snprintf(text + used, sizeof text - used, ", epoch %.2f", last->epoch);
    }
    fprintf(out, "set label 2 ");
    quoted(out, text);
    fprintf(out, " at screen 0.975, screen 0.955 right font ',11' textcolor '#555555'\n");
}

/* From iteration 0 on, unless the rows cover a late and shorter part alone. */
static void iterations(const struct cmn_chart_rows *s, FILE *out)
{
    long first = s->row[0].iteration, last = s->row[s->rows - 1].iteration;

    fprintf(out, "set xrange [%ld:%ld]\n", first > last - first && last > first ? first : 0,
            last > 0 ? last : 1);
}

void cmn_chart_script(const struct cmn_chart_plan *plan, const struct cmn_chart_rows *s, FILE *out)
{
    int drawn = 0;

    /* noenhanced: names are no markup. */
    fprintf(out, "set terminal pngcairo size 1000,700 noenhanced font 'DejaVu Sans,10' "
                 "background '#ffffff'\n");
    if (!s->rows) {
        fprintf(out, "plot [0:1] [0:1] -1 notitle\n");
        return;
    }
    fprintf(out, "set encoding utf8\nset datafile missing 'nan'\n");
    data(plan, s, out);
    fprintf(out, "set multiplot\n"
                 "set border 3 linecolor '#888888'\n"
                 "set tics nomirror scale 0.5 textcolor '#333333'\n"
                 "set grid linecolor '#dddddd' linewidth 1 linetype 1\n"
                 "set key reverse Left samplen 2 textcolor '#333333'\n"
                 "set format x '%%.10g'\n");
    iterations(s, out);
    heading(plan, &s->row[s->rows - 1], out);
    for (int i = 0; i < PANELS; i++) {
        if (panels[i].answer != CMN_NO_ANSWER && panels[i].answer != plan->answer) {
            continue;
        }
        if (panels[i].bottom < 0.2) {
            fprintf(out, "set xlabel 'iteration' textcolor '#333333'\n");
        }
        draw(&panels[i], s, i == 0 && plan->answer == CMN_NO_ANSWER, out);
        if (!drawn++) {
            fprintf(out, "unset label 1\nunset label 2\n");
        }
    }
    fprintf(out, "unset multiplot\n");
}
