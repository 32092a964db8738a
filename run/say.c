#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096 };

static int journal = -1;
static const char *journal_name;

int cmn_run_fail(const char *format, ...)
{
    char text[LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "cmn-run: %s\n", text);
    return -1;
}

/* Whether what the file holds was written here: a wrong name would spoil someone's file. */
static int is_a_journal(int fd)
{
    char line[128];
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0) {
        return 1;
    }
    n = pread(fd, line, sizeof line - 1, 0);
    line[n < 0 ? 0 : n] = '\0';
    return strstr(line, "Z cmn-run[") != NULL;
}

int cmn_journal_open(const char *file)
{
    journal_name = file;
    journal = open(file, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (journal < 0) {
        return cmn_run_fail("journal %s: %s: name another one with -journal", file,
                            strerror(errno));
    }
    if (!is_a_journal(journal)) {
        close(journal);
        journal = -1;
        return cmn_run_fail("journal %s: this file holds something else: name another one with "
                            "-journal",
                            file);
    }
    return 0;
}

static void write_line(const char *event, const char *text)
{
    char line[LINE + 128], when[32];
    struct timespec now;
    struct tm parts;
    int n;

    if (journal < 0) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    n = snprintf(line, sizeof line, "%s.%03ldZ cmn-run[%d] %-7s %s", when, now.tv_nsec / 1000000,
                 (int)getpid(), event, text);
    for (char *c = line; *c; c++) {
        *c = *c == '\n' || *c == '\r' ? ' ' : *c;
    }
    line[n] = '\n';
    if (write(journal, line, (size_t)n + 1) != n + 1) {
        fprintf(stderr, "cmn-run: journal %s: %s: the run goes on without it\n", journal_name,
                strerror(errno));
        close(journal);
        journal = -1;
    }
}

void cmn_journal(const char *event, const char *format, ...)
{
    char text[LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_line(event, text);
}

void cmn_journal_say(const char *event, const char *format, ...)
{
    char text[LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "cmn-run: %s\n", text);
    write_line(event, text);
}

static const char plain[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";

void cmn_quote(char *text, size_t bytes, char *const *word)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; word[i] && n + 8 < bytes; i++) {
        const char *quote = word[i][0] && !word[i][strspn(word[i], plain)] ? "" : "'";
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", i ? " " : "", quote);
        for (const char *c = word[i]; *c && n + 8 < bytes; c++) {
            n += (size_t)snprintf(text + n, bytes - n, *c == '\'' ? "'\\''" : "%c", *c);
        }
        n += (size_t)snprintf(text + n, bytes - n, "%s", quote);
    }
}
