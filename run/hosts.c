#include "hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { SLOTS_MAX = 65536 };

/* Names are passed to a remote shell, where one that begins with a hyphen would be an option. */
static int good_name(const char *name)
{
    size_t n = strlen(name);

    return n && n < CMN_HOST_NAME && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static int good_slots(const char *text, int *slots)
{
    char *end;
    long n = strtol(text, &end, 10);

    *slots = (int)n;
    return isdigit((unsigned char)text[0]) && !*end && n > 0 && n <= SLOTS_MAX;
}

static struct cmn_host *named(const struct cmn_hosts *h, const char *name)
{
    for (int i = 0; i < h->count; i++) {
        if (!strcmp(h->host[i].name, name)) {
            return &h->host[i];
        }
    }
    return NULL;
}

static void add(struct cmn_hosts *h, const char *name, int slots)
{
    struct cmn_host *known = named(h, name);

    if (known) {
        known->slots += slots;
        return;
    }
    h->host = cmn_run_realloc(h->host, (size_t)h->count + 1, sizeof *h->host);
    h->host[h->count] = (struct cmn_host){.slots = slots, .failures = CMN_GOOD};
    snprintf(h->host[h->count++].name, CMN_HOST_NAME, "%s", name);
}

void cmn_hosts_parse(struct cmn_hosts *h, const char *list)
{
    char *copy = strdupa(list), *item;

    while ((item = strsep(&copy, ","))) {
        char *colon = strchr(item, ':');
        int slots = 1;
        if (colon) {
            *colon = '\0';
        }
        if (!good_name(item) || (colon && !good_slots(colon + 1, &slots))) {
            cmn_run_fatal("-hosts %s: write NAME:RANKS,NAME:RANKS…, such as node1:4,node2:4", list);
        }
        add(h, item, slots);
    }
}

static int parse_line(struct cmn_hosts *h, char *line, const char *file, int number)
{
    char *name, *word;
    int slots = 0;

    line[strcspn(line, "#\r\n")] = '\0';
    name = strtok(line, " \t");
    if (!name) {
        return 0;
    }
    while ((word = strtok(NULL, " \t"))) {
        if (!strncmp(word, "slots=", 6) && !good_slots(word + 6, &slots)) {
            return cmn_run_fail("%s:%d: %s: write a number from 1 to %d", file, number, word,
                                SLOTS_MAX);
        }
    }
    if (!good_name(name)) {
        return cmn_run_fail("%s:%d: %s is not the name of a machine", file, number, name);
    }
    if (!slots) {
        return cmn_run_fail("%s:%d: say how many ranks %s takes: slots=N", file, number, name);
    }
    add(h, name, slots);
    return 0;
}

int cmn_hosts_read(struct cmn_hosts *h, const char *text, const char *name)
{
    char *copy = strdup(text), *rest = copy, *line;
    int result = copy ? 0 : cmn_run_fail("%s: out of memory", name);

    for (int number = 1; !result && (line = strsep(&rest, "\n")); number++) {
        result = parse_line(h, line, name, number);
    }
    free(copy);
    if (!result && !h->count) {
        result = cmn_run_fail("%s: no machine is in it", name);
    }
    return result;
}

void cmn_hosts_replace(struct cmn_hosts *h, const struct cmn_hosts *list)
{
    for (int i = 0; h->count && i < list->count; i++) {
        struct cmn_host *new = &list->host[i], *known = named(h, new->name);
        int slots = new->slots;
        new->gone = CMN_HOST_GONE;
        new->failures = 0;
        if (known) {
            *new = *known;
            new->slots = slots;
        }
    }
    free(h->host);
    *h = *list;
}

static int is_address(const char *name)
{
    return !name[strspn(name, "0123456789.")];
}

struct cmn_host *cmn_hosts_find(const struct cmn_hosts *h, const char *name)
{
    struct cmn_host *found = named(h, name);
    size_t n = strcspn(name, ".");

    for (int i = 0; !found && !is_address(name) && i < h->count; i++) {
        const char *other = h->host[i].name;
        if (strcspn(other, ".") == n && !strncmp(other, name, n) && !is_address(other)) {
            found = &h->host[i];
        }
    }
    return found;
}

int cmn_host_is_used(const struct cmn_host *h)
{
    return !h->gone && !h->left && h->failures < CMN_FAILURES;
}

char *cmn_hosts_text(const struct cmn_hosts *h)
{
    const char *comma = "";
    size_t bytes;
    char *text;
    FILE *to = open_memstream(&text, &bytes);

    for (int i = 0; to && i < h->count; i++) {
        if (cmn_host_is_used(&h->host[i])) {
            fprintf(to, "%s%s:%d", comma, h->host[i].name, h->host[i].slots);
            comma = ",";
        }
    }
    if (!to || fclose(to)) {
        cmn_run_fatal("out of memory");
    }
    return text;
}

int cmn_hosts_differ(const struct cmn_hosts *h, const char *text)
{
    struct cmn_hosts others = {0};
    int differ;

    cmn_hosts_parse(&others, text);
    differ = cmn_hosts_ranks(h) != cmn_hosts_ranks(&others);
    for (int i = 0; i < h->count; i++) {
        const struct cmn_host *other = named(&others, h->host[i].name);
        differ |= cmn_host_is_used(&h->host[i]) && (!other || other->slots != h->host[i].slots);
    }
    free(others.host);
    return differ;
}

int cmn_hosts_ranks(const struct cmn_hosts *h)
{
    int ranks = 0;

    for (int i = 0; i < h->count; i++) {
        ranks += cmn_host_is_used(&h->host[i]) ? h->host[i].slots : 0;
    }
    return ranks;
}

enum cmn_gone cmn_hosts_gone(const struct cmn_hosts *h)
{
    enum cmn_gone worst = CMN_HOST_HERE;

    for (int i = 0; i < h->count; i++) {
        worst = h->host[i].gone > worst ? h->host[i].gone : worst;
    }
    return worst;
}

void cmn_hosts_report(struct cmn_hosts *h, const char *then, int news)
{
    for (int i = 0; i < h->count; i++) {
        struct cmn_host *host = &h->host[i];
        if (!host->gone || (news && !strcmp(host->told, host->why))) {
            continue;
        }
        if (host->gone == CMN_HOST_WRONG) {
            cmn_journal_say("gone", "%s: %s", host->name, host->why);
        } else {
            cmn_journal_say("gone", "%s:%d cannot be used (%s): %s", host->name, host->slots,
                            host->why, then);
        }
        snprintf(host->told, sizeof host->told, "%s", host->why);
    }
}
