#include "base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/job_stderr.h"

static struct {
    int known;
    int rank;
    int quiet;
    char host[64];
} self;

static _Thread_local char reason[1024];
static _Thread_local int lost;

void cmn_log_identity(int rank, const char *host)
{
    self.known = 1;
    self.rank = rank;
    snprintf(self.host, sizeof self.host, "%s", host);
    cmn_job_event_identity(rank, host);
}

void cmn_log_prefix(char *text, size_t bytes)
{
    if (self.known) {
        snprintf(text, bytes, "cmn[rank %d@%s] ", self.rank, self.host);
    } else {
        snprintf(text, bytes, "cmn: ");
    }
}

static void note(int loss, const char *format, va_list args)
{
    vsnprintf(reason, sizeof reason, format, args);
    lost = loss;
}

int cmn_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note(0, format, args);
    va_end(args);
    return -1;
}

int cmn_fail_lost(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note(1, format, args);
    va_end(args);
    return -1;
}

int cmn_reason_is_loss(void)
{
    return lost;
}

const char *cmn_reason(void)
{
    return reason[0] ? reason : "unknown reason";
}

int cmn_fail_in(const char *format, ...)
{
    char context[256];
    char whole[sizeof context + sizeof reason + 2];
    va_list args;

    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    snprintf(whole, sizeof whole, "%s: %s", context, cmn_reason());
    return lost ? cmn_fail_lost("%s", whole) : cmn_fail("%s", whole);
}

/* Returns the number of bytes of the character at s, or 0 if it must not be printed. */
static int character(const unsigned char *s)
{
    int n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (n == 1) {
        return *s >= ' ' && *s != 127;
    }
    /* C1 controls and overlong encodings must not be printed. */
    return ((*s == 0xc2 || *s == 0xe0) && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90) ? 0 : n;
}

char *cmn_printable(char *text)
{
    for (char *s = text; *s;) {
        int n = character((unsigned char *)s);
        *s = n ? *s : '?';
        s += n ? n : 1;
    }
    return text;
}

static void say(const char *event, const char *format, va_list args)
{
    char line[1024];

    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "cmn: %s\n", cmn_printable(line));
    if (event) {
        cmn_job_event(event, -1, line);
    }
}

void cmn_say(const char *format, ...)
{
    va_list args;

    if (self.rank != 0 || self.quiet) {
        return;
    }
    va_start(args, format);
    say(NULL, format, args);
    va_end(args);
}

void cmn_tell(const char *format, ...)
{
    va_list args;

    if (self.rank != 0) {
        return;
    }
    va_start(args, format);
    say(NULL, format, args);
    va_end(args);
}

void cmn_warn(const char *format, ...)
{
    va_list args;

    if (self.rank != 0) {
        return;
    }
    va_start(args, format);
    say("warning", format, args);
    va_end(args);
}

void cmn_warn_here(const char *format, ...)
{
    char line[1024], whole[sizeof line + sizeof self.host + 64];
    va_list args;
    int n;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (self.rank == 0) {
        cmn_warn("%s", line);
        return;
    }
    n = snprintf(whole, sizeof whole, "cmn: rank %d@%s: %s\n", self.rank, self.host,
                 cmn_printable(line));
    cmn_job_stderr_write(whole, (size_t)n); /* this rank's own goes to a file, or to nowhere */
}

void cmn_say_nothing(void)
{
    self.quiet = 1;
}

static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    int la = (int)strlen(a);
    int lb = (int)strlen(b);

    if (la > LONGEST || lb > LONGEST) {
        return LONGEST;
    }
    for (int j = 0; j <= lb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= la; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int best =
                diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            if (row[j] + 1 < best) {
                best = row[j] + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb];
}

const char *cmn_nearest(const char *word, const char *const *words, int n)
{
    const char *nearest = NULL;
    int limit = ((int)strlen(word) + 1) / 3 + 1;

    for (int i = 0; i < n; i++) {
        int distance = edit_distance(word, words[i]);
        if (distance < limit) {
            limit = distance;
            nearest = words[i];
        }
    }
    return nearest;
}
