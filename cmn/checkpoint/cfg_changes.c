#include "checkpoint/cfg_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { NAMED = 3, WORD = 64 };

static const char *const free_keys[] = {"max_batches", "policy", "learning_rate", "steps",
                                        "scales",      "step",   "scale",         "gamma",
                                        "power",       "burn_in"};
enum { FREE_KEYS = sizeof free_keys / sizeof free_keys[0] };

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
    const char *name, *body, *end; /* name: with its brackets, up to the line's end */
    int number;
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

/* The first section at or behind p; 0 when there is none. */
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

/* The value of a key, up to the line's end: the first line with the key counts, as in Darknet.
 * NULL: no line has it. */
static const char *value_of(const struct section *s, const char *key, size_t n)
{
    for (const char *p = s->body; p < s->end; p = next_line(p)) {
        if (!strncmp(p, key, n) && p[n] == '=') {
            return p + n + 1;
        }
    }
    return NULL;
}

static int is_free(const char *key, size_t n)
{
    for (int i = 0; i < FREE_KEYS; i++) {
        if (strlen(free_keys[i]) == n && !strncmp(free_keys[i], key, n)) {
            return 1;
        }
    }
    return !strncmp(key, "cmn_", 4);
}

/* 0.9 and .9 are one value. */
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

/* NULL: there is no such line. */
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

/* The keys of `a` that differ from those of `b`, or, `only_missing`, that b has not. */
static void compare_keys(struct report *r, const struct section *a, const struct section *b,
                         int only_missing)
{
    for (const char *p = a->body; p < a->end; p = next_line(p)) {
        size_t n = strcspn(p, "=\n");
        const char *mine, *other;
        if (p[n] != '=' || is_free(p, n)) {
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
