#include "data/image_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/shared_file.h"

/* KEY is the room for a key: the requested channels, then the file name. UNIT: records begin at
 * multiples of it. */
enum { KEY = PATH_MAX + 16, UNIT = 64, WORDS = 8, PAGE = 4096, FIRST_LINES = PAGE / UNIT };
enum { LEVELS = 30, IN_MEMORY = 0, ON_DISK = 1, PLACES };

/* A word of the index is 0, or has, from the highest bit: a part of the hash (TAG_BITS), one bit
 * for the file that a record is in, and the record's offset in units (AT_BITS). */
enum { AT_BITS = 40, TAG_BITS = 23 };

static const uint64_t largest_file = (uint64_t)UNIT << (AT_BITS - 1); /* bytes */

/* The head of a record; the key and the pixels follow. */
struct record {
    uint32_t w, h, c, key_bytes;
};

/* The head of the memory file; the levels follow. `used` and `limit` are bytes per file, including
 * what lies in front of the records. */
struct index {
    uint64_t token;
    atomic_uint_least64_t used[PLACES];
    uint64_t limit[PLACES];
};

/* The message from the node's first rank to the others. */
struct offer {
    struct cmn_shared_file file[PLACES];
    uint64_t levels, device, inode; /* device, inode: of its working folder */
};

static struct {
    int fd[PLACES]; /* -1: there is no such file */
    struct index *index;
    size_t index_bytes;
    int levels;
} cache = {.fd = {-1, -1}};
/* Open and close lock it for writing, all else for reading. */
static pthread_rwlock_t open_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- the two files ---- */

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Reads into `data`, or writes from there, all of the bytes. */
static int move_all(int fd, void *data, size_t bytes, uint64_t at, int writes)
{
    for (size_t done = 0; done < bytes;) {
        char *p = (char *)data + done;
        off_t where = (off_t)(at + done);
        ssize_t n = writes ? pwrite(fd, p, bytes - done, where) : pread(fd, p, bytes - done, where);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_all(int fd, const void *data, size_t bytes, uint64_t at)
{
    return move_all(fd, (void *)(uintptr_t)data, bytes, at, 1);
}

/* Takes room for a record in the first file that has it. Returns the offset of the record, or 0 if
 * none has. */
static uint64_t take_room(size_t bytes, int *place)
{
    for (*place = IN_MEMORY; *place < PLACES; ++*place) {
        atomic_uint_least64_t *used = &cache.index->used[*place];
        uint64_t at = atomic_load(used);
        while (at + bytes <= cache.index->limit[*place]) {
            if (atomic_compare_exchange_weak(used, &at, at + bytes)) {
                return at;
            }
        }
    }
    return 0;
}

/* Gives the room back, unless somebody has taken room behind it. */
static void give_room_back(int place, uint64_t at, size_t bytes)
{
    uint64_t end = at + bytes;

    atomic_compare_exchange_strong(&cache.index->used[place], &end, at);
}

/* ---- records ---- */

struct key {
    char text[KEY];
    size_t bytes;
    uint64_t hash;
};

static void make_key(struct key *k, const char *file, int channels)
{
    k->bytes = (size_t)snprintf(k->text, sizeof k->text, "%d %s", channels, file);
    /* A key that is too long gets hash 0, and its image is not kept. */
    k->hash = k->bytes < sizeof k->text ? XXH3_64bits(k->text, k->bytes) : 0;
}

static uint64_t word_of(const struct key *k, int place, uint64_t at)
{
    uint64_t tag = k->hash >> (64 - TAG_BITS);

    return tag << (AT_BITS + 1) | (uint64_t)place << AT_BITS | at / UNIT;
}

static atomic_uint_least64_t *line_of(const struct key *k, int level)
{
    size_t lines = (size_t)FIRST_LINES << level;
    size_t before = lines - FIRST_LINES; /* lines of the levels before this one */
    char *levels = (char *)cache.index + PAGE;

    return (atomic_uint_least64_t *)(void *)(levels + UNIT * (before + (k->hash & (lines - 1))));
}

/* Returns whether the word belongs to a record with this key. Copies its pixels to *pixels, which
 * the caller frees, unless pixels is NULL; *pixels becomes NULL if they cannot be read. */
static int holds(uint64_t word, const struct key *k, struct record *r, unsigned char **pixels)
{
    enum { AT_ONCE = 2 * PAGE };
    char begin[AT_ONCE];
    int fd = cache.fd[word >> AT_BITS & 1];
    uint64_t at = (word & (((uint64_t)1 << AT_BITS) - 1)) * UNIT;
    size_t head = sizeof *r + k->bytes, bytes, here;
    ssize_t n;

    if (word >> (AT_BITS + 1) != k->hash >> (64 - TAG_BITS) || fd < 0) {
        return 0;
    }
    n = pread(fd, begin, sizeof begin, (off_t)at);
    if (n < (ssize_t)head) {
        return 0;
    }
    memcpy(r, begin, sizeof *r);
    if (r->key_bytes != k->bytes || memcmp(begin + sizeof *r, k->text, k->bytes) != 0) {
        return 0;
    }
    if (pixels) {
        bytes = (size_t)r->w * r->h * r->c;
        here = (size_t)n - head < bytes ? (size_t)n - head : bytes;
        *pixels = malloc(bytes ? bytes : 1);
        if (*pixels) {
            memcpy(*pixels, begin + head, here);
        }
        if (*pixels && move_all(fd, *pixels + here, bytes - here, at + head + here, 0)) {
            free(*pixels);
            *pixels = NULL;
        }
    }
    return 1;
}

static int find(const struct key *k, struct record *r, unsigned char **pixels)
{
    for (int level = 0; level < cache.levels; level++) {
        atomic_uint_least64_t *line = line_of(k, level);
        for (int i = 0; i < WORDS; i++) {
            uint64_t word = atomic_load_explicit(&line[i], memory_order_acquire);
            if (!word) {
                return 0;
            }
            if (holds(word, k, r, pixels)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Publishes a record. Returns 0, or -1 if another rank has published the image or the index is
 * full. */
static int publish(const struct key *k, uint64_t word)
{
    struct record other;

    for (int level = 0; level < cache.levels; level++) {
        atomic_uint_least64_t *line = line_of(k, level);
        for (int i = 0; i < WORDS; i++) {
            uint64_t found = 0;
            if (atomic_compare_exchange_strong_explicit(
                    &line[i], &found, word, memory_order_release, memory_order_acquire)) {
                return 0;
            }
            if (holds(found, k, &other, NULL)) {
                return -1;
            }
        }
    }
    return -1;
}

unsigned char *cmn_image_cache_find(const char *file, int channels, int *w, int *h, int *c)
{
    unsigned char *pixels = NULL;
    struct record r;
    struct key k;

    pthread_rwlock_rdlock(&open_lock);
    if (cache.index) {
        make_key(&k, file, channels);
        if (k.hash && find(&k, &r, &pixels) && pixels) {
            *w = (int)r.w;
            *h = (int)r.h;
            *c = (int)r.c;
        }
    }
    pthread_rwlock_unlock(&open_lock);
    return pixels;
}

void cmn_image_cache_keep(const char *file, int channels, int w, int h, int c,
                          const unsigned char *pixels)
{
    struct record r = {(uint32_t)w, (uint32_t)h, (uint32_t)c, 0}, other;
    size_t bytes = (size_t)w * (size_t)h * (size_t)c, room;
    struct key k;
    uint64_t at;
    int place;

    pthread_rwlock_rdlock(&open_lock);
    if (cache.index) {
        make_key(&k, file, channels);
        r.key_bytes = (uint32_t)k.bytes;
        room = rounded(sizeof r + k.bytes + bytes, UNIT);
        at = k.hash && !find(&k, &other, NULL) ? take_room(room, &place) : 0;
        if (at && (write_all(cache.fd[place], &r, sizeof r, at) ||
                   write_all(cache.fd[place], k.text, k.bytes, at + sizeof r) ||
                   write_all(cache.fd[place], pixels, bytes, at + sizeof r + k.bytes) ||
                   publish(&k, word_of(&k, place, at)))) {
            give_room_back(place, at, room);
        }
    }
    pthread_rwlock_unlock(&open_lock);
}

/* ---- opening and closing ---- */

static uint64_t at_most(uint64_t bytes)
{
    struct rlimit file;

    if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur != RLIM_INFINITY &&
        bytes > file.rlim_cur) {
        bytes = file.rlim_cur;
    }
    return bytes < largest_file ? bytes : largest_file;
}

/* Returns the number of levels at which the index has twice as many words as there can be images of
 * half a KiB. */
static uint64_t levels_for(uint64_t bytes)
{
    enum { LEAST = 512 };
    uint64_t level = 1;

    while (level < LEVELS && ((uint64_t)FIRST_LINES << level) * WORDS < 2 * bytes / LEAST) {
        level++;
    }
    return level;
}

static size_t index_bytes(uint64_t levels)
{
    return PAGE + (((size_t)FIRST_LINES << levels) - FIRST_LINES) * UNIT;
}

/* Opens a file without a name in the folder. Returns -1 with errno. File systems without O_TMPFILE
 * get a file that is unlinked. */
static int open_in(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        char *name = cmn_format("%s/.cmn-cache-XXXXXX", folder);
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0) {
            unlink(name);
        }
        free(name);
    }
    return fd;
}

static void use_folder(const char *folder, struct cmn_shared_file *f, uint64_t *limit)
{
    struct statvfs disk;

    cache.fd[ON_DISK] = open_in(folder);
    if (cache.fd[ON_DISK] < 0 || fstatvfs(cache.fd[ON_DISK], &disk) ||
        cmn_shared_file_offer(f, cache.fd[ON_DISK], 0)) {
        cmn_fatal("cmn_cache_dir: %s: %s: name a folder on a disk of each host that this user may "
                  "write to",
                  folder, strerror(errno));
    }
    *limit = at_most((uint64_t)disk.f_bavail * disk.f_frsize / 2);
}

static void drop(void)
{
    if (cache.index) {
        munmap(cache.index, cache.index_bytes);
    }
    for (int place = 0; place < PLACES; place++) {
        if (cache.fd[place] >= 0) {
            close(cache.fd[place]);
        }
        cache.fd[place] = -1;
    }
    cache.index = NULL;
}

static int map_index(uint64_t levels)
{
    void *at;

    cache.levels = (int)levels;
    cache.index_bytes = index_bytes(levels);
    at = mmap(NULL, cache.index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cache.fd[IN_MEMORY], 0);
    cache.index = at == MAP_FAILED ? NULL : at;
    return cache.index ? 0 : cmn_fail("its index cannot be mapped: %s", strerror(errno));
}

/* Creates one of `caches` caches of the node, with its part of the limits. Returns 0, or -1 with a
 * reason. */
static int create(int caches, uint64_t bytes, const char *folder, struct offer *o)
{
    uint64_t limit[PLACES] = {bytes / (uint64_t)caches, 0}, index;

    if (folder[0]) {
        use_folder(folder, &o->file[ON_DISK], &limit[ON_DISK]);
        limit[ON_DISK] /= (uint64_t)caches;
    }
    o->levels = levels_for(limit[IN_MEMORY] + limit[ON_DISK]);
    index = index_bytes(o->levels);
    if (at_most(index) < index) {
        return cmn_fail("its index needs a limit of a file's size (ulimit -f) of %zu KiB",
                        (size_t)(index >> 10));
    }
    cache.fd[IN_MEMORY] = memfd_create("cmn-images", MFD_CLOEXEC);
    if (cache.fd[IN_MEMORY] < 0 || ftruncate(cache.fd[IN_MEMORY], (off_t)index) ||
        cmn_shared_file_offer(&o->file[IN_MEMORY], cache.fd[IN_MEMORY], 0)) {
        return cmn_fail("no memory file: %s", strerror(errno));
    }
    if (map_index(o->levels)) {
        return -1;
    }
    atomic_store(&cache.index->used[IN_MEMORY], index);
    atomic_store(&cache.index->used[ON_DISK], UNIT);
    cache.index->limit[IN_MEMORY] = at_most(index + limit[IN_MEMORY]);
    cache.index->limit[ON_DISK] = limit[ON_DISK];
    return 0;
}

/* Opens what the node's first rank has created. Returns 0, or -1 with a reason. */
static int join(const struct offer *o, const struct stat *here)
{
    if (o->device != here->st_dev || o->inode != here->st_ino) {
        return cmn_fail("they work in different folders");
    }
    for (int place = 0; place < PLACES; place++) {
        if (o->file[place].file >= 0) {
            cache.fd[place] = cmn_shared_file_join(&o->file[place], 0);
            if (cache.fd[place] < 0) {
                return -1;
            }
        }
    }
    return map_index(o->levels);
}

/* Collective over the node. Lets its first rank create a cache and the others join it: all of them
 * or none. Returns 0, or -1 on all ranks with the reason of one. */
static int create_or_join(const struct cmn_topology *t, uint64_t bytes, const char *folder)
{
    struct offer o = {.file = {{-1, -1, 0}, {-1, -1, 0}}};
    struct stat here = {.st_ino = 0};
    int result = 0;

    if (stat(".", &here) == 0) {
        o.device = here.st_dev;
        o.inode = here.st_ino;
    }
    if (t->intra_rank == 0) {
        result = create(1, bytes, folder, &o);
    }
    MPI_CALL(MPI_Bcast(&o, sizeof o, MPI_BYTE, 0, t->intra));
    if (t->intra_rank > 0 && o.file[IN_MEMORY].file >= 0) {
        result = join(&o, &here);
    }
    result = cmn_mpi_all_succeeded(result, t->intra);
    if (result) {
        drop();
    }
    return result;
}

void cmn_image_cache_open(const struct cmn_topology *t, size_t bytes, const char *folder)
{
    struct offer o = {.file = {{-1, -1, 0}, {-1, -1, 0}}};
    unsigned long long allowed = bytes;
    int ranks = t ? t->intra_size : 1;

    cmn_image_cache_close();
    if (ranks > 1) {
        MPI_CALL(MPI_Bcast(&allowed, 1, MPI_UNSIGNED_LONG_LONG, 0, t->intra));
    }
    if (!allowed && !folder[0]) {
        return;
    }
    pthread_rwlock_wrlock(&open_lock);
    if (ranks > 1 && create_or_join(t, allowed, folder) == 0) {
        ranks = 0;
    } else if (ranks > 1) {
        cmn_say("the ranks of a node cannot share decoded images, so each caches its own: %s",
                cmn_reason());
    }
    if (ranks > 0 && create(ranks, allowed, folder, &o)) {
        cmn_say("caches no images: %s", cmn_reason());
        drop();
    }
    pthread_rwlock_unlock(&open_lock);
}

size_t cmn_image_cache_default_limit(void)
{
    return cmn_memory_free() / 4;
}

void cmn_image_cache_close(void)
{
    pthread_rwlock_wrlock(&open_lock);
    drop();
    pthread_rwlock_unlock(&open_lock);
}
