/* `darknet cmn checkpoint FILE`: prints what a checkpoint holds and whether it is intact. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "checkpoint/reader.h"
#include "tools/tool.h"

/* Prints a line for each name. Tensors of the same name follow each other. */
static void print_tensors(const struct cmn_checkpoint_file *f)
{
    size_t bytes = 0;
    int ranks = 0; /* ranks that have their own tensor of the name */
    char text[16];

    printf("%-32s %10s %14s\n", "tensor", "ranks", "bytes");
    printf("%-32s %10s %14zu\n", "weights", "-", f->mark.weights);
    for (size_t i = 0; i < f->tensors; i++) {
        const struct cmn_checkpoint_tensor *tensor = &f->tensor[i];
        ranks += tensor->rank != CMN_ALL_RANKS;
        bytes += tensor->bytes;
        if (i + 1 == f->tensors || strcmp(tensor->name, tensor[1].name)) {
            snprintf(text, sizeof text, "%d", ranks);
            printf("%-32s %10s %14zu%s\n", tensor->name, ranks ? text : "-", bytes,
                   tensor->in_weights ? " of the weights" : "");
            ranks = 0;
            bytes = 0;
        }
    }
}

static void print_text(const char *text)
{
    for (; *text; text++) {
        putchar(isprint((unsigned char)*text) ? *text : '?');
    }
}

/* Prints the members of an object and of the objects in it. Texts of several lines, such as the
 * cfg, and arrays are left out. */
static void print_members(const cJSON *object)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, object)
    {
        if (cJSON_IsObject(item)) {
            print_members(item);
        } else if (cJSON_IsNumber(item)) {
            printf("  ");
            print_text(item->string);
            printf(" = %.12g\n", item->valuedouble);
        } else if (cJSON_IsString(item) && !strchr(item->valuestring, '\n')) {
            printf("  ");
            print_text(item->string);
            printf(" = ");
            print_text(item->valuestring);
            putchar('\n');
        }
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
    t = (time_t)f->written;
    if (gmtime_r(&t, &tm)) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    }
    printf(
        "file       %s\niteration  %ld\nwritten    %s\nbytes      %zu, all checksums are right\n\n",
        argv[1], f->iteration, when, f->n);
    print_tensors(f);
    printf("\ntraining\n");
    print_members(f->training);
    cmn_checkpoint_free(f);
    return 0;
}
