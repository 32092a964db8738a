#include "cfg_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 3, WORD = 64 };
#define NOT_SET "not set"

static const char *const free_keys[] = {"max_batches", "policy", "learning_rate", "steps",
                                        "scales",      "step",   "scale",         "gamma",
                                        "power",       "burn_in"};
enum { FREE_KEYS = sizeof free_keys / sizeof free_keys[0] };

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

/* Darknet takes the first line with a key. Whether there is one. */
static int value_of(const struct section *s, const char *key, size_t n, char value[WORD])
{
    value[0] = '\0';
    for (const char *p = s->body; p < s->end; p = next_line(p)) {
        if (!strncmp(p, key, n) && p[n] == '=') {
            word(value, p + n + 1, (size_t)(line_end(p) - p) - n - 1);
            return 1;
        }
    }
    return 0;
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
    char *after_a, *after_b;
    double x = strtod(a, &after_a), y = strtod(b, &after_b);

    return !strcmp(a, b) ||
           (after_a != a && after_b != b && !*after_a && !*after_b && !(x < y) && !(x > y));
}

static void note(struct report *r, const struct section *s, const char *key, size_t n,
                 const char *was, const char *is)
{
    char where[WORD], name[WORD], place[WORD] = "";

    if (r->changes++ >= NAMED || r->used >= r->bytes) {
        return;
    }
    word(where, s->name, (size_t)(line_end(s->name) - s->name));
    word(name, key, n);
    if (s->number > 0) {
        snprintf(place, sizeof place, " of layer %d", s->number - 1);
    }
    r->used += (size_t)snprintf(r->text + r->used, r->bytes - r->used, "%s%s %s%s was %s, is %s",
                                r->changes > 1 ? "; " : "", where, name, place, was, is);
}

/* The keys of `a` that differ from those of `b`, or, `only_missing`, that b has not. */
static void compare_keys(struct report *r, const struct section *a, const struct section *b,
                         int only_missing)
{
    char was[WORD], is[WORD];

    for (const char *p = a->body; p < a->end; p = next_line(p)) {
        size_t n = strcspn(p, "=\n");
        int there;
        if (p[n] != '=' || is_free(p, n)) {
            continue;
        }
        there = value_of(b, p, n, is);
        value_of(a, p, n, was);
        if (only_missing && !there) {
            note(r, a, p, n, NOT_SET, was);
        } else if (!only_missing && !(there && same(was, is))) {
            note(r, a, p, n, was, there ? is : NOT_SET);
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
            note(&r, in_a ? &a : &b, "layer", 5, in_a ? "there" : NOT_SET,
                 in_b ? "there" : NOT_SET);
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
