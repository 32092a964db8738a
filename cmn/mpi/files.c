#include "mpi/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

/* Reads the rest of a stream. Returns it with a zero byte after its *n bytes; the caller frees
 * it. */
static char *rest_of(FILE *file, size_t *n)
{
    size_t room = 65536;
    char *text = cmn_malloc(room, 1);

    *n = 0;
    while ((*n += fread(text + *n, 1, room - *n - 1, file)) == room - 1) {
        room *= 2;
        text = cmn_realloc(text, room, 1);
    }
    text[*n] = '\0';
    return text;
}

/* Reads a whole file, which the caller frees. Returns 0, or a value of errno. */
static int read_all(const char *name, char **text, size_t *n)
{
    FILE *file = fopen(name, "rb");
    int error = file ? 0 : errno;

    if (file) {
        errno = 0;
        *text = rest_of(file, n);
        error = !ferror(file) ? 0 : errno ? errno : EIO;
        fclose(file);
    }
    return error;
}

char *cmn_files_text(FILE *file)
{
    size_t n;
    char *text = rest_of(file, &n);

    rewind(file);
    return text;
}

int cmn_files_hash(const char *name, size_t *bytes, uint64_t *hash)
{
    char block[65536];
    FILE *file = NULL;
    struct stat st;
    size_t n;
    int failed;

    *bytes = 0;
    *hash = 0;
    if (!stat(name, &st)) {
        errno = EINVAL;
        file = S_ISREG(st.st_mode) ? fopen(name, "re") : NULL;
    }
    if (!file) {
        return -1;
    }
    while ((n = fread(block, 1, sizeof block, file)) > 0) {
        *bytes += n;
        *hash = XXH3_64bits_withSeed(block, n, *hash);
    }
    failed = ferror(file);
    fclose(file);
    if (failed) {
        *bytes = 0;
        *hash = 0;
        errno = EIO;
    }
    return failed ? -1 : 0;
}

FILE *cmn_files_stream(const char *text, size_t bytes)
{
    int fd = memfd_create("cmn", MFD_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w+b");

    /* It may fail on this rank only: the others would continue. */
    if (!file || fwrite(text, 1, bytes, file) != bytes || fflush(file)) {
        cmn_fatal("no memory for a copy of a file's text: %s", strerror(errno));
    }
    rewind(file);
    return file;
}

FILE *cmn_files_broadcast(const struct cmn_topology *t, const char *name)
{
    unsigned long head[2] = {0, 0}; /* bytes; a value of errno */
    char *text = NULL;
    FILE *file = NULL;

    if (t->rank == 0) {
        cmn_status_file(name);
        head[1] = (unsigned long)read_all(name, &text, &head[0]);
        cmn_status_file(NULL);
    }
    MPI_CALL(MPI_Bcast(head, 2, MPI_UNSIGNED_LONG, 0, t->world));
    if (head[1]) {
        errno = (int)head[1];
        cmn_fail("%s: %s", name, strerror(errno));
        goto out;
    }
    if (t->rank != 0) {
        text = cmn_malloc(head[0] + 1, 1);
    }
    cmn_mpi_bcast(text, head[0], MPI_CHAR, t->world);
    file = cmn_files_stream(text, head[0]);
out:
    free(text);
    return file;
}

/* Ends the job if `here` differs from rank 0's text, and names the first line that differs. */
static void refuse_difference(const char *what, const char *theirs, const char *here)
{
    while (*theirs || *here) {
        size_t n = strcspn(theirs, "\n");
        size_t m = strcspn(here, "\n");
        if (n != m || strncmp(theirs, here, n)) {
            cmn_fatal("the %s differs from rank 0's: rank 0 has \"%.*s\", this rank has "
                      "\"%.*s\": give every rank the same files and options",
                      what, (int)n, theirs, (int)m, here);
        }
        theirs += n + (theirs[n] == '\n');
        here += m + (here[m] == '\n');
    }
}

void cmn_files_compare(const char *what, const char *text, const struct cmn_topology *t)
{
    unsigned long bytes = strlen(text) + 1;
    char *theirs;

    MPI_CALL(MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG, 0, t->world));
    theirs = cmn_malloc(bytes, 1);
    if (t->rank == 0) {
        memcpy(theirs, text, bytes);
    }
    cmn_mpi_bcast(theirs, bytes, MPI_CHAR, t->world);
    refuse_difference(what, theirs, text);
    free(theirs);
}

int cmn_files_make_folder(const char *folder)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST) {
            return -1;
        }
        *slash = '/';
    }
    return mkdir(path, 0777) && errno != EEXIST ? -1 : 0;
}

const char *cmn_files_unwritable(const char *folder)
{
    char probe[4200];
    struct stat st;
    int fd;

    if (stat(folder, &st)) {
        return errno == ENOENT ? NULL : strerror(errno);
    }
    /* For root, access() says yes even on a read-only mount, so this creates a real file. */
    snprintf(probe, sizeof probe, "%s/.cmn-probe-XXXXXX", folder);
    fd = mkstemp(probe);
    if (fd < 0) {
        return strerror(errno);
    }
    close(fd);
    unlink(probe);
    return NULL;
}

int cmn_files_make_writable(const char *folder)
{
    struct stat st;
    int created = 0;

    if (stat(folder, &st)) {
        if (errno != ENOENT || cmn_files_make_folder(folder)) {
            cmn_fatal("backup folder %s: %s: make it, or name another one as `backup` in the "
                      ".data file",
                      folder, strerror(errno));
        }
        created = 1;
    }
    if (cmn_files_unwritable(folder)) {
        cmn_fatal("backup folder %s cannot be written: %s", folder, cmn_files_unwritable(folder));
    }
    return created;
}

/* Returns whether the file has these n bytes at that offset. */
static int has_at(FILE *in, long offset, int whence, const void *bytes, size_t n)
{
    char found[128];

    return n == 0 || (n < sizeof found && !fseek(in, offset, whence) &&
                      fread(found, 1, n, in) == n && !memcmp(found, bytes, n));
}

int cmn_files_replaceable(const char *what, const char *file, const char *begin, const void *end,
                          size_t bytes)
{
    struct stat st;
    int ours;
    FILE *in;

    if (stat(file, &st)) {
        return 0; /* The code that writes the file finds out whether it can be created. */
    }
    if (!S_ISREG(st.st_mode)) {
        return cmn_fail("%s %s: something that is not a file has this name", what, file);
    }
    in = fopen(file, "r");
    if (!in) {
        return cmn_fail("%s %s: %s", what, file, strerror(errno));
    }
    ours = st.st_size == 0 || (has_at(in, 0, SEEK_SET, begin, strlen(begin)) &&
                               has_at(in, -(long)bytes, SEEK_END, end, bytes));
    fclose(in);
    return ours ? 0
                : cmn_fail("%s %s: what is there is no %s of a training, and would be lost: move "
                           "it away, or give another name",
                           what, file, what);
}

size_t cmn_files_count_lines(FILE *file)
{
    char *line = NULL;
    size_t bytes = 0, n = 0;

    while (getline(&line, &bytes, file) >= 0) {
        n += line[strspn(line, " \t\r\n")] != '\0';
    }
    free(line);
    rewind(file);
    return n;
}
