#include "hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

enum { MOST_SLOTS = 65536 };

/* Names go to a remote shell: one that begins with a hyphen would be an option there. */
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
    return isdigit((unsigned char)text[0]) && !*end && n > 0 && n <= MOST_SLOTS;
}

static int add(struct cmn_hosts *h, const char *name, int slots)
{
    struct cmn_host *more;

    for (int i = 0; i < h->count; i++) {
        if (!strcmp(h->host[i].name, name)) {
            h->host[i].slots += slots;
            return 0;
        }
    }
    more = realloc(h->host, (size_t)(h->count + 1) * sizeof *more);
    if (!more) {
        return cmn_run_fail("out of memory");
    }
    h->host = more;
    memset(&more[h->count], 0, sizeof *more);
    memcpy(more[h->count].name, name, strlen(name) + 1);
    more[h->count++].slots = slots;
    return 0;
}

int cmn_hosts_parse(struct cmn_hosts *h, const char *list)
{
    char *copy = strdup(list), *rest = copy, *item;
    int result = copy ? 0 : cmn_run_fail("out of memory");

    while (!result && (item = strsep(&rest, ","))) {
        char *colon = strchr(item, ':');
        int slots = 1;
        if (colon) {
            *colon = '\0';
        }
        if (!good_name(item) || (colon && !good_slots(colon + 1, &slots))) {
            result = cmn_run_fail("-hosts %s: what is wanted is NAME:RANKS,NAME:RANKS…, such as "
                                  "node1:4,node2:4",
                                  list);
        } else {
            result = add(h, item, slots);
        }
    }
    free(copy);
    return result;
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
            return cmn_run_fail("%s:%d: %s: a number from 1 to %d is wanted", file, number, word,
                                MOST_SLOTS);
        }
    }
    if (!good_name(name)) {
        return cmn_run_fail("%s:%d: %s is not the name of a machine", file, number, name);
    }
    if (!slots) {
        return cmn_run_fail("%s:%d: say how many ranks %s takes: slots=N", file, number, name);
    }
    return add(h, name, slots);
}

int cmn_hosts_read(struct cmn_hosts *h, const char *file)
{
    FILE *in = fopen(file, "r");
    char *line = NULL;
    size_t bytes = 0;
    int result = 0;

    if (!in) {
        return cmn_run_fail("-hostfile %s: %s", file, strerror(errno));
    }
    for (int number = 1; !result && getline(&line, &bytes, in) >= 0; number++) {
        result = parse_line(h, line, file, number);
    }
    if (!result && ferror(in)) {
        result = cmn_run_fail("-hostfile %s: %s", file, strerror(errno));
    }
    if (!result && !h->count) {
        result = cmn_run_fail("-hostfile %s: no machine is in it", file);
    }
    free(line);
    fclose(in);
    return result;
}

void cmn_hosts_print(const struct cmn_hosts *h, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; i < h->count && n < bytes; i++) {
        if (!h->host[i].gone) {
            n += (size_t)snprintf(text + n, bytes - n, "%s%s:%d", n ? "," : "", h->host[i].name,
                                  h->host[i].slots);
        }
    }
}

int cmn_hosts_ranks(const struct cmn_hosts *h)
{
    int ranks = 0;

    for (int i = 0; i < h->count; i++) {
        ranks += h->host[i].gone ? 0 : h->host[i].slots;
    }
    return ranks;
}

int cmn_hosts_gone(const struct cmn_hosts *h)
{
    int gone = 0;

    for (int i = 0; i < h->count; i++) {
        gone += h->host[i].gone;
    }
    return gone;
}

void cmn_hosts_free(struct cmn_hosts *h)
{
    free(h->host);
    h->host = NULL;
    h->count = 0;
}
