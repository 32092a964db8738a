#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "checkpoint/checkpoint.h"
#include "base/log.h"
#include "tools/tool.h"

/* A line for each name: sections of one name follow each other. */
static void print_sections(const struct cmn_checkpoint_file *f)
{
    size_t n = cmn_checkpoint_sections(f), bytes = 0, stored = 0;
    struct cmn_checkpoint_section s, next;
    long ranks = 0; /* that have one of their own */
    char text[24];

    printf("%-32s %10s %14s %14s\n", "section", "ranks", "bytes", "stored");
    cmn_checkpoint_at(f, 0, &next);
    for (size_t i = 0; i < n; i++) {
        s = next;
        ranks += s.rank != CMN_NO_RANK;
        bytes += s.bytes;
        stored += s.stored;
        if (i + 1 < n) {
            cmn_checkpoint_at(f, i + 1, &next);
        }
        if (i + 1 == n || strcmp(s.name, next.name)) {
            snprintf(text, sizeof text, "%ld", ranks);
            printf("%-32s %10s %14zu %14zu\n", s.name, ranks ? text : "-", bytes, stored);
            ranks = 0;
            bytes = stored = 0;
        }
    }
}

/* Text that a training has put there, line by line. */
static void print_text(const struct cmn_checkpoint_file *f, const char *name)
{
    size_t n;
    const char *text = cmn_checkpoint_section(f, name, CMN_NO_RANK, &n);

    if (!text) {
        return;
    }
    printf("%s\n", name);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || text[i - 1] == '\n') {
            printf("  ");
        }
        putchar(isprint((unsigned char)text[i]) || text[i] == '\n' ? text[i] : '?');
    }
    if (n && text[n - 1] != '\n') {
        putchar('\n');
    }
}

int cmn_tool_checkpoint(int argc, char **argv)
{
    struct cmn_checkpoint_file *f;
    char when[64] = "at a time that no calendar knows";
    struct tm tm;
    time_t t;

    if (argc != 2) {
        fprintf(stderr, "usage: darknet cmn checkpoint FILE\n");
        return 1;
    }
    f = cmn_checkpoint_read(argv[1]);
    if (!f) {
        fprintf(stderr, "darknet cmn checkpoint: %s\n", cmn_reason());
        return 1;
    }
    t = (time_t)cmn_checkpoint_when(f);
    if (gmtime_r(&t, &tm)) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    }
    printf(
        "file       %s\niteration  %ld\nwritten    %s\nbytes      %zu, all checksums are right\n\n",
        argv[1], cmn_checkpoint_iteration(f), when, cmn_checkpoint_bytes(f));
    print_sections(f);
    printf("\n");
    print_text(f, "identity");
    print_text(f, "numbers");
    cmn_checkpoint_free(f);
    return 0;
}
