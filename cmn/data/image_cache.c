#include "data/image_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* without memory an image is not kept */
#include <uthash.h>

#include "base/memory.h"

struct kept {
    UT_hash_handle hh;
    int w, h, c;
    unsigned char *pixels;
    char key[]; /* channels asked for, then the file name */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct kept *table;
static size_t limit, used;

enum { KEY = 4112 };

static void make_key(char *key, const char *file, int channels)
{
    snprintf(key, KEY, "%d %s", channels, file);
}

void cmn_image_cache_limit(size_t bytes)
{
    limit = bytes;
}

unsigned char *cmn_image_cache_find(const char *file, int channels, int *w, int *h, int *c)
{
    char key[KEY];
    struct kept *k = NULL;
    unsigned char *copy = NULL;

    if (!limit) {
        return NULL;
    }
    make_key(key, file, channels);
    pthread_rwlock_rdlock(&lock);
    HASH_FIND_STR(table, key, k);
    if (k) {
        size_t bytes = (size_t)k->w * (size_t)k->h * (size_t)k->c;
        copy = malloc(bytes);
        if (copy) {
            memcpy(copy, k->pixels, bytes);
            *w = k->w;
            *h = k->h;
            *c = k->c;
        }
    }
    pthread_rwlock_unlock(&lock);
    return copy;
}

void cmn_image_cache_keep(const char *file, int channels, int w, int h, int c,
                          const unsigned char *pixels)
{
    char key[KEY];
    struct kept *k, *other = NULL;
    size_t bytes = (size_t)w * (size_t)h * (size_t)c;
    size_t room, length;

    make_key(key, file, channels);
    length = strlen(key) + 1;
    room = sizeof *k + length + bytes;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND_STR(table, key, other);
    if (!other && used + room <= limit) {
        k = malloc(room);
        if (k) {
            memcpy(k->key, key, length);
            k->w = w;
            k->h = h;
            k->c = c;
            k->pixels = (unsigned char *)k->key + length;
            memcpy(k->pixels, pixels, bytes);
            HASH_ADD_STR(table, key, k);
            if (k->hh.tbl) {
                used += room;
            } else {
                free(k);
            }
        }
    }
    pthread_rwlock_unlock(&lock);
}

size_t cmn_image_cache_default_limit(int ranks_on_node)
{
    return cmn_memory_free() / 4 / (size_t)ranks_on_node;
}

void cmn_image_cache_close(void)
{
    struct kept *k, *next;

    pthread_rwlock_wrlock(&lock);
    HASH_ITER(hh, table, k, next)
    {
        HASH_DEL(table, k);
        free(k);
    }
    used = 0;
    pthread_rwlock_unlock(&lock);
}
