#include "mpi/consistency.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "mpi/files.h"

/* Returns a hash of the program's loaded, read-only segments, `n` bytes of whose file are at
 * `bytes`. Skips headers and notes, which refer to debugging sections and so to folder names. A
 * linker puts them into a segment of their own, or in front of the code. */
static uint64_t hash_code(const unsigned char *bytes, size_t n)
{
    const ElfW(Phdr) *all = (const void *)getauxval(AT_PHDR);
    size_t segments = getauxval(AT_PHNUM), headers = sizeof(ElfW(Ehdr)) + segments * sizeof *all;
    uint64_t hash = 0;

    for (size_t i = 0; i < segments; i++) {
        const ElfW(Phdr) *part = &all[i];
        size_t at = part->p_offset, end = at + part->p_filesz;
        if (part->p_type != PT_LOAD || part->p_flags & PF_W || end > n) {
            continue;
        }
        at = at < headers ? headers : at;
        while (at < end) {
            size_t stop = end, next = end;
            /* This finds the first note at or after `at`. */
            for (size_t k = 0; k < segments; k++) {
                const ElfW(Phdr) *note = &all[k];
                size_t after = note->p_offset + note->p_filesz;
                if (note->p_type == PT_NOTE && after > at && after <= end &&
                    note->p_offset < stop) {
                    stop = note->p_offset < at ? at : note->p_offset;
                    next = after;
                }
            }
            hash = stop > at ? XXH3_64bits_withSeed(bytes + at, stop - at, hash) : hash;
            at = next;
        }
    }
    return hash;
}

void cmn_compare_program(const struct cmn_topology *t)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *bytes = MAP_FAILED;
    uint64_t hash;
    struct stat st;
    char text[128];

    if (fd >= 0 && !fstat(fd, &st)) {
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes == MAP_FAILED) {
        cmn_fatal("the program cannot be compared with the other ranks': /proc/self/exe cannot be "
                  "read");
    }
    hash = hash_code(bytes, (size_t)st.st_size);
    if (!hash) {
        cmn_fatal("the program cannot be compared with the other ranks': /proc/self/exe is not the "
                  "program that runs");
    }
    snprintf(text, sizeof text, "darknet-cmn %s, code %016" PRIx64 "\n", CMN_VERSION, hash);
    munmap(bytes, (size_t)st.st_size);
    close(fd);
    cmn_files_compare("program", text, t);
}

void cmn_compare_file(const struct cmn_topology *t, const char *file)
{
    char what[512], text[256];
    uint64_t hash;
    size_t n;

    if (cmn_files_hash(file, &n, &hash)) {
        snprintf(text, sizeof text, "%s\n", strerror(errno));
    } else {
        snprintf(text, sizeof text, "%zu bytes, hash %016llx\n", n, (unsigned long long)hash);
    }
    snprintf(what, sizeof what, "file %s", file);
    cmn_files_compare(what, text, t);
}
