#include "data/scatter.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <uthash.h>
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/stop_request.h"
#include "config/options.h"

enum { MESSAGE = 4 << 20, SLOTS = 3, BLOCK = 4096, TAG = 1 };
enum { FOLDER = CMN_TEXT + 128, SUBFOLDER = FOLDER + 8, PATH = FOLDER + 64 };

/* Size of a file in bytes (-1: there is no such file), and its modification time. It is sent as
 * NUMBERS MPI_INT64_T. */
struct about {
    int64_t size, s, ns;
};
enum { NUMBERS = sizeof(struct about) / sizeof(int64_t) };

struct file {
    UT_hash_handle hh;
    unsigned char wanted; /* by some rank of this node */
    unsigned char optional;
    char name[];
};

static struct {
    const struct cmn_topology *t;
    char folder[FOLDER]; /* where the copies are; empty: this host reads the files themselves */
    /* The added files since the last send. Only the first rank of each node keeps their names. */
    unsigned char *wanted;
    size_t n, room;
    struct file **added; /* one for each call of cmn_scatter_add(); equal names have one file */
    struct file *files;
} self;

/* ---- names ---- */

/* Writes the path of the copy of `name` to `path`, which has PATH bytes. */
static void name_copy(const char *name, char *path)
{
    XXH128_hash_t h = XXH3_128bits(name, strlen(name));

    snprintf(path, PATH, "%s/%02x/%014llx%016llx", self.folder, (unsigned)(h.high64 >> 56),
             (unsigned long long)(h.high64 & 0xffffffffffffff), (unsigned long long)h.low64);
}

const char *cmn_scatter_path(const char *name)
{
    static _Thread_local char path[PATH];

    if (!self.folder[0]) {
        return name;
    }
    name_copy(name, path);
    return path;
}

void cmn_scatter_require(char *const *paths, int n, const struct cmn_topology *t)
{
    if (self.folder[0]) {
        return; /* rank 0 has looked at all that it is to send */
    }
    for (int i = t->rank; i < n; i += t->size) {
        if (access(paths[i], R_OK)) {
            cmn_fatal("Cannot load image \"%s\" of the valid list: %s", paths[i], strerror(errno));
        }
    }
}

static _Noreturn void refuse_folder(const char *folder, const char *why)
{
    cmn_fatal("cmn_cache_dir: %s: %s: name a folder on a disk of each host that this user may "
              "write to",
              folder, why);
}

static void make_folder(const char *folder)
{
    struct stat about;

    if ((mkdir(folder, 0700) && errno != EEXIST) || lstat(folder, &about)) {
        refuse_folder(folder, strerror(errno));
    }
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid()) {
        refuse_folder(folder, "it is not a folder of this user");
    }
}

static const char incoming[] = "incoming";

static int is_incoming(const char *file, const void *unused)
{
    (void)unused;
    return !strcmp(file, incoming);
}

static void make_folders(void)
{
    enum { SUBFOLDERS = 256 };
    char subfolder[SUBFOLDER];

    make_folder(self.folder);
    cmn_atomic_sweep_of(self.folder, is_incoming, NULL);
    for (int i = 0; i < SUBFOLDERS; i++) {
        snprintf(subfolder, sizeof subfolder, "%s/%02x", self.folder, (unsigned)i % SUBFOLDERS);
        make_folder(subfolder);
    }
}

/* The names in a list are those of rank 0's files. So the folder's name is made of rank 0's host,
 * its user and the folder in which it works. */
void cmn_scatter_open(const struct cmn_topology *t, const char *cache)
{
    char place[128] = "", *here = getcwd(NULL, 0), *whose;

    self.t = t;
    self.folder[0] = '\0';
    if (t->rank == 0) {
        whose = cmn_format("%u:%s", (unsigned)geteuid(), here ? here : "");
        snprintf(place, sizeof place, "darknet-%s-%016llx", t->host,
                 (unsigned long long)XXH3_64bits(whose, strlen(whose)));
        free(whose);
    }
    free(here);
    MPI_CALL(MPI_Bcast(place, sizeof place, MPI_CHAR, 0, t->world));
    if (t->inter_rank > 0) {
        snprintf(self.folder, sizeof self.folder, "%s/%s", cache, place);
    }
    if (self.folder[0] && t->intra_rank == 0) {
        make_folders();
    }
}

void cmn_scatter_add(const char *name, int wanted, int optional)
{
    struct file *f = NULL;
    size_t length = strlen(name);

    if (!self.t || self.t->inter_size < 2) {
        return;
    }
    if (self.n == self.room) {
        self.room = self.room ? 2 * self.room : 4096;
        self.wanted = cmn_realloc(self.wanted, self.room, sizeof *self.wanted);
        self.added = cmn_realloc(self.added, self.room, sizeof(struct file *));
    }
    if (self.t->intra_rank == 0) {
        HASH_FIND(hh, self.files, name, length, f);
    }
    if (self.t->intra_rank == 0 && !f) {
        f = cmn_calloc(1, sizeof *f + length + 1);
        memcpy(f->name, name, length);
        f->optional = 1;
        HASH_ADD_KEYPTR(hh, self.files, f->name, length, f);
    }
    if (f) {
        f->optional &= (unsigned char)(optional != 0); /* it may be an image and a label file */
    }
    self.wanted[self.n] = (unsigned char)(wanted != 0);
    self.added[self.n++] = f;
}

/* ---- which files travel ---- */

/* A transfer, as the first rank of a node sees it. */
struct transfer {
    MPI_Comm leaders; /* the first ranks of all nodes, in the order of the nodes */
    int rank, last;   /* own rank in leaders; the last rank that lacks a file, 0: none does */
    int n;
    struct file **file;
    struct about *about;
    unsigned char *needed; /* by this host; on rank 0, by any host */
    int resumed, bar;
    double bytes; /* bytes of the needed files */
    double began;

    /* A ring of SLOTS messages between this thread and the one that reads or writes files: one of
     * the two fills slots, the other one empties them. */
    char *slot[SLOTS];
    size_t used[SLOTS];
    sem_t full, empty;
    size_t filled, emptied;
};

static struct about about_of(const struct stat *s)
{
    return (struct about){s->st_size, s->st_mtim.tv_sec, s->st_mtim.tv_nsec};
}

static int is_same(const struct about *a, const struct about *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Rank 0 only. Returns size and time of a file; ends the job if it is missing and not optional, or
 * is no regular file. */
static struct about look_at(const struct file *f)
{
    struct stat s;
    int missing = stat(f->name, &s);

    cmn_status_progress();
    if (missing ? !f->optional || errno != ENOENT : !S_ISREG(s.st_mode)) {
        cmn_fatal("%s, which a list of images names, cannot be sent from rank 0's host: %s",
                  f->name, missing ? strerror(errno) : "it is no regular file");
    }
    return missing ? (struct about){.size = -1} : about_of(&s);
}

static _Noreturn void refuse_changed(const char *name, const char *copy)
{
    cmn_fatal("%s has changed on rank 0's host since this host received it, and the training that "
              "is resumed has used it as it was: restore it, start over with -clear, or remove "
              "%s to continue with other data",
              name, copy);
}

/* Returns whether this host needs the file and has no copy of it that agrees with rank 0's `a`. If
 * rank 0 has no such file any more, removes the copy. */
static int lacks(const struct file *f, const struct about *a, int resumed)
{
    struct about copy = {.size = -1};
    char path[PATH];
    struct stat s;

    cmn_status_progress();
    if (!f->wanted) {
        return 0;
    }
    name_copy(f->name, path);
    if (stat(path, &s) == 0) {
        copy = about_of(&s);
    }
    if (a->size >= 0 || copy.size < 0) {
        return !is_same(&copy, a);
    }
    if (resumed) {
        refuse_changed(f->name, path);
    }
    if (unlink(path) && errno != ENOENT) {
        refuse_folder(path, strerror(errno));
    }
    return 0;
}

/* All hosts except rank 0's. Finds the files that this host needs, and checks the free space for
 * them. */
static void find_needed(struct transfer *x)
{
    double room, blocks = 0;
    struct statvfs disk;

    for (int i = 0; i < x->n; i++) {
        x->needed[i] = (unsigned char)lacks(x->file[i], &x->about[i], x->resumed);
        if (x->needed[i]) {
            x->bytes += (double)x->about[i].size;
            blocks += (double)((x->about[i].size + BLOCK - 1) / BLOCK);
        }
    }
    room = statvfs(self.folder, &disk) ? INFINITY : (double)disk.f_bavail * (double)disk.f_frsize;
    if (blocks * BLOCK > room) {
        cmn_fatal("cmn_cache_dir: %s: its disk has %.1f MB free, and %.1f MB of images and labels "
                  "are to come: free space there, or name another folder",
                  self.folder, room / 1e6, blocks * BLOCK / 1e6);
    }
}

/* Collective over x->leaders. Distributes the sizes and times of rank 0's files, and finds which
 * files are needed, and the last host that needs one. */
static void agree(struct transfer *x)
{
    int mine;

    for (int i = 0; i < x->n && x->rank == 0; i++) {
        x->about[i] = look_at(x->file[i]);
    }
    cmn_mpi_bcast(x->about, NUMBERS * (size_t)x->n, MPI_INT64_T, x->leaders);
    if (x->rank > 0) {
        find_needed(x);
    }
    mine = memchr(x->needed, 1, (size_t)x->n) ? x->rank : 0;
    MPI_CALL(MPI_Allreduce(&mine, &x->last, 1, MPI_INT, MPI_MAX, x->leaders));
    MPI_CALL(MPI_Reduce(x->rank ? x->needed : MPI_IN_PLACE, x->needed, x->n, MPI_UNSIGNED_CHAR,
                        MPI_BOR, 0, x->leaders));
}

/* ---- messages ---- */

/* A message holds parts of files: for each part this head and then the bytes, padded to a multiple
 * of 8. If a message has no room for the rest of a file, the file continues in the next one. A
 * message of 0 bytes is the last one. */
struct part {
    uint32_t file, bytes;
    uint64_t hash; /* of the bytes, with the file's number as the seed */
};

static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s)) { /* interrupted by a signal */
    }
}

static char *begin_filling(struct transfer *x)
{
    wait_for(&x->empty);
    return x->slot[x->filled % SLOTS];
}

static void end_filling(struct transfer *x, size_t bytes)
{
    cmn_status_progress();
    x->used[x->filled++ % SLOTS] = bytes;
    sem_post(&x->full);
}

static char *begin_emptying(struct transfer *x, size_t *bytes)
{
    wait_for(&x->full);
    *bytes = x->used[x->emptied % SLOTS];
    return x->slot[x->emptied % SLOTS];
}

static void end_emptying(struct transfer *x)
{
    cmn_status_progress();
    x->emptied++;
    sem_post(&x->empty);
}

/* ---- rank 0 ---- */

static _Noreturn void refuse_reading(const char *name, const char *why)
{
    cmn_fatal("%s: %s while it is sent to the other hosts (cmn_data=scatter)", name, why);
}

static void read_bytes(int fd, const char *name, char *to, size_t bytes)
{
    for (ssize_t n; bytes; to += n, bytes -= (size_t)n) {
        n = read(fd, to, bytes);
        if (n <= 0) {
            refuse_reading(name, n ? strerror(errno) : "it has become shorter");
        }
    }
}

/* Appends file i to the message at `to`, which has *used bytes, and passes on full messages.
 * Returns the message to fill next. */
static char *pack(struct transfer *x, int i, char *to, size_t *used)
{
    const char *name = x->file[i]->name;
    size_t left = (size_t)x->about[i].size;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    struct about now;
    struct stat s;

    if (fd < 0) {
        refuse_reading(name, strerror(errno));
    }
    do {
        struct part p = {.file = (uint32_t)i};
        size_t room;
        if (*used + sizeof p + BLOCK > MESSAGE) {
            end_filling(x, *used);
            to = begin_filling(x);
            *used = 0;
        }
        room = MESSAGE - *used - sizeof p;
        p.bytes = (uint32_t)(left < room ? left : room);
        read_bytes(fd, name, to + *used + sizeof p, p.bytes);
        p.hash = XXH3_64bits_withSeed(to + *used + sizeof p, p.bytes, p.file);
        memcpy(to + *used, &p, sizeof p);
        *used += padded(sizeof p + p.bytes);
        left -= p.bytes;
    } while (left);
    now = fstat(fd, &s) ? (struct about){.size = -1} : about_of(&s);
    if (!is_same(&now, &x->about[i])) {
        refuse_reading(name, "it has changed");
    }
    close(fd);
    return to;
}

static void *read_files(void *argument)
{
    struct transfer *x = argument;
    char *to = begin_filling(x);
    size_t used = 0;

    cmn_stop_leave_to_main();
    for (int i = 0; i < x->n; i++) {
        if (x->needed[i]) {
            cmn_status_file(x->file[i]->name);
            to = pack(x, i, to, &used);
        }
    }
    cmn_status_file(NULL);
    if (used) {
        end_filling(x, used);
        begin_filling(x);
    }
    end_filling(x, 0);
    return NULL;
}

static void draw(const struct transfer *x, double sent)
{
    double part = sent < x->bytes ? sent / x->bytes : 1;

    printf("\r[%-30.*s] %3.0f %%  of %.1f MB of images and labels to the other hosts\033[K",
           (int)(30 * part), "##############################", 100 * part, x->bytes / 1e6);
    fflush(stdout);
}

static void send_messages(struct transfer *x)
{
    double sent = 0; /* bytes, including the heads of the parts */
    size_t bytes;

    do {
        const char *message = begin_emptying(x, &bytes);
        MPI_CALL(MPI_Send(message, (int)bytes, MPI_BYTE, 1, TAG, x->leaders));
        end_emptying(x);
        sent += (double)bytes;
        if (x->bar) {
            draw(x, sent);
        }
    } while (bytes);
}

/* ---- other hosts ---- */

/* The copy that is being written. */
struct copy {
    int fd, old; /* the new file; the copy that it replaces, -1: none */
    int same;    /* 1: equal to the old copy so far */
    int64_t bytes;
    char temporary[PATH], path[PATH];
};

static _Noreturn void refuse_writing(const struct transfer *x, const struct copy *c)
{
    const char *why = strerror(errno);

    unlink(c->temporary);
    cmn_fatal("cmn_cache_dir: %s: %s while %.1f MB of images and labels arrive: free space there, "
              "or name another folder; the next start continues with the files that have arrived",
              self.folder, why, x->bytes / 1e6);
}

/* The temporary file has a name that cmn_atomic_sweep_of() removes after a crash. The lock protects
 * it while it is written: a locked file is not removed. */
static void begin_copy(const struct transfer *x, struct copy *c, const char *name)
{
    *c = (struct copy){.old = -1, .same = 1};
    snprintf(c->temporary, PATH, "%s/%s.XXXXXX.part", self.folder, incoming);
    name_copy(name, c->path);
    c->fd = mkostemps(c->temporary, (int)strlen(".part"), O_CLOEXEC);
    if (c->fd < 0) {
        refuse_writing(x, c);
    }
    flock(c->fd, LOCK_EX | LOCK_NB);
    if (x->resumed) {
        c->old = open(c->path, O_RDONLY | O_CLOEXEC);
    }
}

static void write_bytes(const struct transfer *x, const struct copy *c, const char *data,
                        size_t bytes)
{
    for (ssize_t n; bytes; data += n, bytes -= (size_t)n) {
        n = write(c->fd, data, bytes);
        if (n <= 0) {
            refuse_writing(x, c);
        }
    }
}

static void compare_bytes(struct copy *c, const char *data, size_t bytes)
{
    char block[BLOCK];

    for (size_t at = 0; at < bytes && c->same; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
        c->same = pread(c->old, block, n, c->bytes + (off_t)at) == (ssize_t)n &&
                  !memcmp(block, data + at, n);
    }
}

static void end_copy(const struct transfer *x, struct copy *c, int i)
{
    const struct about *a = &x->about[i];
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = a->s, .tv_nsec = a->ns}};
    struct stat s;

    if (c->old >= 0 && (!c->same || fstat(c->old, &s) || s.st_size != a->size)) {
        unlink(c->temporary);
        refuse_changed(x->file[i]->name, c->path);
    }
    if (futimens(c->fd, times) || rename(c->temporary, c->path)) {
        refuse_writing(x, c);
    }
    close(c->fd);
    if (c->old >= 0) {
        close(c->old);
    }
}

static void unpack(const struct transfer *x, struct copy *c, const char *message, size_t bytes)
{
    struct part p;

    for (size_t at = 0; at < bytes; at += padded(sizeof p + p.bytes)) {
        const char *data = message + at + sizeof p;
        memcpy(&p, message + at, sizeof p);
        if (XXH3_64bits_withSeed(data, p.bytes, p.file) != p.hash) {
            unlink(c->temporary);
            cmn_fatal_lost("cmn_data=scatter: a message of images has other bytes than rank 0 has "
                           "sent: check this host's network and memory");
        }
        if (!x->needed[p.file]) {
            continue; /* another host needs it */
        }
        if (c->bytes == 0) {
            begin_copy(x, c, x->file[p.file]->name);
        }
        if (c->old >= 0) {
            compare_bytes(c, data, p.bytes);
        }
        write_bytes(x, c, data, p.bytes);
        c->bytes += p.bytes;
        if (c->bytes == x->about[p.file].size) {
            end_copy(x, c, (int)p.file);
            c->bytes = 0;
        }
        cmn_status_progress();
    }
}

static void *write_files(void *argument)
{
    struct transfer *x = argument;
    struct copy c = {.bytes = 0};
    size_t bytes;

    cmn_stop_leave_to_main();
    do {
        const char *message = begin_emptying(x, &bytes);
        unpack(x, &c, message, bytes);
        end_emptying(x);
    } while (bytes);
    return NULL;
}

/* Receives each message while it sends the previous one to the next node. */
static void pass_messages(struct transfer *x)
{
    int next = x->rank < x->last ? x->rank + 1 : MPI_PROC_NULL, bytes = 0;
    const char *before = NULL;
    MPI_Status status;

    do {
        char *message = begin_filling(x);
        MPI_CALL(MPI_Sendrecv(before, bytes, MPI_BYTE, before ? next : MPI_PROC_NULL, TAG, message,
                              MESSAGE, MPI_BYTE, x->rank - 1, TAG, x->leaders, &status));
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        end_filling(x, (size_t)bytes);
        before = message;
    } while (bytes);
    MPI_CALL(MPI_Send(NULL, 0, MPI_BYTE, next, TAG, x->leaders));
}

/* ---- a transfer ---- */

static void move_files(struct transfer *x)
{
    pthread_t thread;

    sem_init(&x->full, 0, 0);
    sem_init(&x->empty, 0, SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        x->slot[i] = cmn_malloc(1, MESSAGE);
    }
    if (pthread_create(&thread, NULL, x->rank ? write_files : read_files, x)) {
        cmn_fatal("cmn_data=scatter: no thread to read and write files: raise the limit of "
                  "processes (ulimit -u)");
    }
    if (x->rank) {
        pass_messages(x);
    } else {
        send_messages(x);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < SLOTS; i++) {
        free(x->slot[i]);
    }
}

static void tell_and_send(struct transfer *x)
{
    int files = 0;

    for (int i = 0; i < x->n; i++) {
        files += x->needed[i];
        x->bytes += x->needed[i] ? (double)x->about[i].size : 0;
    }
    if (x->last == 0) {
        cmn_say("cmn_data=scatter: the other hosts have all of %d files", x->n);
        return;
    }
    cmn_say("cmn_data=scatter: sends %d of %d files, %.1f MB, to the other hosts, which lack them",
            files, x->n, x->bytes / 1e6);
    move_files(x);
    if (x->bar) {
        printf("\r\033[K");
    }
    cmn_say("cmn_data=scatter: sent in %.1f s", cmn_clock() - x->began);
}

/* The first rank of each node only. */
static void transfer(int resumed, int bar)
{
    struct transfer x = {.leaders = self.t->inter,
                         .rank = self.t->inter_rank,
                         .n = (int)HASH_COUNT(self.files),
                         .resumed = resumed,
                         .began = cmn_clock(),
                         .bar = bar && cmn_output_watched()};
    struct file *f, *next;
    int i = 0;

    x.file = cmn_calloc((size_t)x.n + 1, sizeof(struct file *));
    x.about = cmn_calloc((size_t)x.n + 1, sizeof *x.about);
    x.needed = cmn_calloc((size_t)x.n + 1, sizeof *x.needed);
    for (size_t k = 0; k < self.n; k++) {
        self.added[k]->wanted |= self.wanted[k];
    }
    for (f = self.files; f; f = f->hh.next) {
        x.file[i++] = f;
    }
    agree(&x);
    if (x.rank == 0) {
        tell_and_send(&x);
    } else if (x.rank <= x.last) {
        move_files(&x);
    }
    free(x.file);
    free(x.about);
    free(x.needed);
    HASH_ITER(hh, self.files, f, next)
    {
        HASH_DEL(self.files, f);
        free(f);
    }
}

void cmn_scatter_send(int resumed, int bar)
{
    const struct cmn_topology *t = self.t;
    void *mine = self.wanted;

    if (!t || t->inter_size < 2 || self.n == 0) {
        return;
    }
    MPI_CALL(MPI_Reduce(t->intra_rank ? mine : MPI_IN_PLACE, mine, (int)self.n, MPI_UNSIGNED_CHAR,
                        MPI_BOR, 0, t->intra));
    if (t->intra_rank == 0) {
        transfer(resumed, bar);
    }
    MPI_CALL(MPI_Barrier(t->intra));
    free(self.wanted);
    free(self.added);
    self.wanted = NULL;
    self.added = NULL;
    self.n = self.room = 0;
}
