#include "config/cfg_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Removes all blanks (CMN_CFG_BLANKS_GO), or those at both ends. */
static void strip(char *s, enum cmn_cfg_blanks blanks)
{
    char *to = s, *end;

    if (blanks == CMN_CFG_BLANKS_STAY) {
        memmove(s, s + strspn(s, " \t\r\n"), strlen(s + strspn(s, " \t\r\n")) + 1);
        for (end = s + strlen(s); end > s && strchr(" \t\r\n", end[-1]); end--) {
            end[-1] = '\0';
        }
        return;
    }
    for (const char *from = s; *from; from++) {
        if (!strchr(" \t\r\n", *from)) {
            *to++ = *from;
        }
    }
    *to = '\0';
}

static void add(struct cmn_cfg_file *cfg, struct cmn_cfg_line line)
{
    if ((cfg->lines & (cfg->lines - 1)) == 0) { /* The array is full at 0, 1, 2, 4 … lines. */
        cfg->each =
            cmn_realloc(cfg->each, cfg->lines ? 2 * (size_t)cfg->lines : 1, sizeof *cfg->each);
    }
    cfg->each[cfg->lines++] = line;
}

static void parse_line(struct cmn_cfg_file *cfg, int number, char *s, enum cmn_cfg_blanks blanks)
{
    struct cmn_cfg_line line = {.line = number, .section = cfg->sections - 1, .value = s};
    char *equals = strchr(s, '=');

    if (s[0] == '[' && blanks == CMN_CFG_BLANKS_GO) {
        char *close = strchr(s, ']');
        if (close && strchr("#;", close[1])) { /* a comment behind the head */
            close[1] = '\0';
        }
        line.section = cfg->sections++;
        line.key = s;
        line.value = "";
    } else if (equals && equals != s && equals[1]) {
        *equals = '\0';
        strip(s, blanks);
        strip(equals + 1, blanks);
        line.key = s;
        line.value = equals + 1;
    }
    add(cfg, line);
}

char *cmn_cfg_behind_mark(char *text)
{
    return text + (strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3);
}

int cmn_text_is_utf16(const char *text)
{
    return !strncmp(text, "\xff\xfe", 2) || !strncmp(text, "\xfe\xff", 2);
}

void cmn_cfg_parse(struct cmn_cfg_file *cfg, FILE *file, enum cmn_cfg_blanks blanks)
{
    size_t n = 0, room = 0;
    char *s;

    *cfg = (struct cmn_cfg_file){0};
    while (!feof(file) && !ferror(file)) {
        if (n + 1 >= room) {
            room = room ? 2 * room : 4096;
            cfg->text = cmn_realloc(cfg->text, room, 1);
        }
        n += fread(cfg->text + n, 1, room - n - 1, file);
    }
    if (!cfg->text) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        cfg->text[i] = cfg->text[i] ? cfg->text[i] : ' ';
    }
    cfg->text[n] = '\0';
    s = cmn_cfg_behind_mark(cfg->text);
    for (int number = 1; s; number++) {
        char *end = strchr(s, '\n');
        if (end) {
            *end = '\0';
        }
        strip(s, blanks);
        if (s[0] && s[0] != '#' && s[0] != ';') {
            parse_line(cfg, number, s, blanks);
        }
        s = end ? end + 1 : NULL;
    }
}

long cmn_list_clean(char *text, size_t bytes, int images)
{
    enum { MOST = 4000 }; /* Darknet has 4096 bytes for a name */
    char *from = cmn_cfg_behind_mark(text), *to = text, *end = text + bytes;

    if (cmn_text_is_utf16(text)) {
        return cmn_fail(CMN_UTF16);
    }
    if (strlen(text) != bytes) {
        return cmn_fail("byte %zu is 0, which no text has: write the file anew", strlen(text) + 1);
    }
    while (from < end) { /* the last line's end may take the place of the 0 */
        size_t n = strcspn(from, "\n");
        char *next = from + n + 1;
        while (n && strchr(images ? " \t\r" : "\r", from[n - 1])) {
            n--;
        }
        if (n >= MOST) {
            return cmn_fail("a line has %zu bytes, and a name may have %d", n, MOST - 1);
        }
        if (!images || n) {
            memmove(to, from, n);
            to[n] = '\n';
            to += n + 1;
        }
        from = next;
    }
    return to == text ? cmn_fail("the list is empty") : to - text;
}

void cmn_cfg_free(struct cmn_cfg_file *cfg)
{
    free(cfg->each);
    free(cfg->text);
    *cfg = (struct cmn_cfg_file){0};
}

const struct cmn_cfg_line *cmn_cfg_find(const struct cmn_cfg_file *cfg, int section,
                                        const char *key)
{
    for (int i = 0; i < cfg->lines; i++) {
        const struct cmn_cfg_line *l = &cfg->each[i];
        if (l->section == section && l->key && (key ? !strcmp(l->key, key) : l->key[0] == '[')) {
            return l;
        }
    }
    return NULL;
}

const char *cmn_cfg_text(const struct cmn_cfg_file *cfg, int section, const char *key,
                         const char *otherwise)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(cfg, section, key);

    return l ? l->value : otherwise;
}

int cmn_cfg_int(const struct cmn_cfg_file *cfg, int section, const char *key, int otherwise)
{
    const struct cmn_cfg_line *l = cmn_cfg_find(cfg, section, key);

    return l ? atoi(l->value) : otherwise;
}

int cmn_cfg_numbers_in(const char *list)
{
    int n = 1;

    for (; *list && *list != '#'; list++) {
        n += *list == ',' && list[1];
    }
    return n;
}

static int has_more;

void cmn_cfg_declare_more(void)
{
    has_more = 1;
}

int cmn_cfg_has_more(void)
{
    return has_more;
}
