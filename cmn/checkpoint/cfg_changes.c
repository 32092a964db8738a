#include "checkpoint/cfg_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* NAMED: differences that are described; WORD: bytes of each word in a description. */
enum { NAMED = 3, WORD = 64 };

char *cmn_cfg_plain(const char *text)
{
    char *plain = cmn_malloc(strlen(text) + 1, 1);
    size_t n = 0;
    int comment = 0, start = 1;

    for (const char *c = text; *c; c++) {
        if (*c == '\n') {
            if (!start && !comment) {
                plain[n++] = *c;
            }
            comment = 0;
            start = 1;
        } else if (*c != ' ' && *c != '\t' && *c != '\r') {
            comment = start ? *c == '#' || *c == ';' : comment;
            start = 0;
            if (!comment) {
                plain[n++] = *c;
            }
        }
    }
    plain[n] = '\0';
    return plain;
}

struct report {
    char *text;
    size_t bytes, used;
    int changes;
};

struct section {
    const char *name, *body, *end; /* the name has its brackets and ends with its line */
    int number;                    /* 0: [net], i: layer i - 1 */
};

static const char *line_end(const char *p)
{
    return p + strcspn(p, "\n");
}

static const char *next_line(const char *p)
{
    p = line_end(p);
    return *p ? p + 1 : p;
}

/* Finds the first section that begins at or after p. Returns 0 if there is none. */
static int find_section(const char *p, struct section *s)
{
    while (*p && *p != '[') {
        p = next_line(p);
    }
    s->name = p;
    s->body = s->end = next_line(p);
    while (*s->end && *s->end != '[') {
        s->end = next_line(s->end);
    }
    return *s->name != '\0';
}

static void word(char to[WORD], const char *from, size_t n)
{
    snprintf(to, WORD, "%.*s%s", (int)(n < WORD - 4 ? n : WORD - 4), from,
             n < WORD - 4 ? "" : "...");
}

/* Returns the value of a key, which ends with its line. The first line with the key counts, as in
 * Darknet. NULL: no line has the key. */
static const char *value_of(const struct section *s, const char *key, size_t n)
{
    for (const char *p = s->body; p < s->end; p = next_line(p)) {
        if (!strncmp(p, key, n) && p[n] == '=') {
            return p + n + 1;
        }
    }
    return NULL;
}

/* Returns whether a training may change this key without a line: the one of [net] that sets its
 * end, and those that begin with cmn_. */
static int is_free(const struct section *s, const char *key, size_t n)
{
    static const char end[] = "max_batches";

    return (s->number == 0 && n == sizeof end - 1 && !strncmp(key, end, n)) ||
           !strncmp(key, "cmn_", 4);
}

/* Returns whether two values are equal as text or as numbers: 0.9 equals .9. */
static int same(const char *a, const char *b)
{
    size_t n = (size_t)(line_end(a) - a), m = (size_t)(line_end(b) - b);
    char *after_a, *after_b;
    double x, y;

    if (n == m && !strncmp(a, b, n)) {
        return 1;
    }
    x = n ? strtod(a, &after_a) : 0;
    y = m ? strtod(b, &after_b) : 0;
    return n && m && after_a == a + n && after_b == b + m && x <= y && x >= y;
}

/* Counts one difference, and describes it if it is among the first. `was` or `is` is NULL if the
 * key is not set there. */
static void note(struct report *r, const struct section *s, const char *key, size_t n,
                 const char *was, const char *is)
{
    char where[WORD], name[WORD], before[WORD] = "not set", now[WORD] = "not set", place[WORD] = "";

    if (r->changes++ >= NAMED || r->used >= r->bytes) {
        return;
    }
    word(where, s->name, (size_t)(line_end(s->name) - s->name));
    word(name, key, n);
    if (was) {
        word(before, was, (size_t)(line_end(was) - was));
    }
    if (is) {
        word(now, is, (size_t)(line_end(is) - is));
    }
    if (s->number > 0) {
        snprintf(place, sizeof place, " of layer %d", s->number - 1);
    }
    r->used += (size_t)snprintf(r->text + r->used, r->bytes - r->used, "%s%s %s%s was %s, is %s",
                                r->changes > 1 ? "; " : "", where, name, place, before, now);
}

/* Notes the keys of `a` whose values differ in `b` or that `b` lacks; with only_missing, notes only
 * the keys that `b` lacks, as new ones. */
static void compare_keys(struct report *r, const struct section *a, const struct section *b,
                         int only_missing)
{
    for (const char *p = a->body; p < a->end; p = next_line(p)) {
        size_t n = strcspn(p, "=\n");
        const char *mine, *other;
        if (p[n] != '=' || is_free(a, p, n)) {
            continue;
        }
        mine = value_of(a, p, n);
        other = value_of(b, p, n);
        if (only_missing && !other) {
            note(r, a, p, n, NULL, mine);
        } else if (!only_missing && !(other && same(mine, other))) {
            note(r, a, p, n, mine, other);
        }
    }
}

int cmn_cfg_changes(const char *there, const char *here, char *text, size_t bytes)
{
    struct report r = {text, bytes, 0, 0};
    struct section a = {.end = there}, b = {.end = here};

    text[0] = '\0';
    for (int i = 0;; i++) {
        int in_a = find_section(a.end, &a), in_b = find_section(b.end, &b);
        if (!in_a && !in_b) {
            break;
        }
        a.number = b.number = i;
        if (!in_a || !in_b) {
            note(&r, in_a ? &a : &b, "layer", 5, in_a ? "there" : NULL, in_b ? "there" : NULL);
            break;
        }
        compare_keys(&r, &a, &b, 0);
        compare_keys(&r, &b, &a, 1);
    }
    if (r.changes > NAMED && r.used < bytes) {
        snprintf(text + r.used, bytes - r.used, "; and %d more", r.changes - NAMED);
    }
    return r.changes;
}
