#include "mpi/consistency.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "mpi/files.h"

/* Maps a file and returns its *n bytes. Returns NULL with errno, which is 0 for an empty file. */
static const unsigned char *map(const char *name, size_t *n)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC), reason;
    const unsigned char *bytes = MAP_FAILED;
    struct stat st;

    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &st)) {
        reason = errno;
    } else if (!S_ISREG(st.st_mode)) {
        reason = EINVAL;
    } else {
        *n = (size_t)st.st_size;
        bytes = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
        reason = *n ? errno : 0;
    }
    close(fd);
    errno = bytes == MAP_FAILED ? reason : 0;
    return bytes == MAP_FAILED ? NULL : bytes;
}

/* Returns header i of the program's segments. The caller has checked that all headers lie within
 * the file. */
static Elf64_Phdr segment(const unsigned char *bytes, const Elf64_Ehdr *head, int i)
{
    Elf64_Phdr it;

    memcpy(&it, bytes + head->e_phoff + (size_t)i * sizeof it, sizeof it);
    return it;
}

/* Returns a hash of the loaded, read-only segments, or 0 if this is not a 64-bit ELF file. Skips
 * headers and notes, which refer to debugging sections and so to folder names. A linker puts them
 * into a segment of their own, or in front of the code. */
static uint64_t hash_code(const unsigned char *bytes, size_t n)
{
    Elf64_Ehdr head;
    uint64_t hash = 0;

    if (n < sizeof head) {
        return 0;
    }
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > n ||
        (n - head.e_phoff) / sizeof(Elf64_Phdr) < head.e_phnum) {
        return 0;
    }
    for (int i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part = segment(bytes, &head, i);
        size_t at = part.p_offset, end = at + part.p_filesz;
        size_t headers = head.e_phoff + head.e_phnum * sizeof part;
        if (part.p_type != PT_LOAD || part.p_flags & PF_W || end > n || end < at) {
            continue;
        }
        at = at < headers ? headers : at;
        while (at < end) {
            size_t stop = end, next = end;
            /* This finds the first note at or after `at`. */
            for (int k = 0; k < head.e_phnum; k++) {
                Elf64_Phdr note = segment(bytes, &head, k);
                size_t after = note.p_offset + note.p_filesz;
                if (note.p_type == PT_NOTE && after > at && after <= end && note.p_offset < stop) {
                    stop = note.p_offset < at ? at : note.p_offset;
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
    size_t n = 0;
    const unsigned char *bytes = map("/proc/self/exe", &n);
    uint64_t hash = bytes ? hash_code(bytes, n) : 0;
    char text[128];

    if (!hash) {
        cmn_fatal("the program cannot be compared with the other ranks': /proc/self/exe %s",
                  bytes ? "is no ELF file with 64 bits" : "cannot be read");
    }
    munmap((void *)bytes, n);
    snprintf(text, sizeof text, "darknet-cmn %s, code %016llx\n", CMN_VERSION,
             (unsigned long long)hash);
    cmn_files_compare("program", text, t);
}

void cmn_compare_file(const struct cmn_topology *t, const char *file)
{
    size_t n = 0;
    const unsigned char *bytes = map(file, &n);
    char what[512], text[256];

    if (bytes || !errno) {
        snprintf(text, sizeof text, "%zu bytes, hash %016llx\n", n,
                 (unsigned long long)XXH3_64bits(bytes, n));
    } else {
        snprintf(text, sizeof text, "%s\n", strerror(errno));
    }
    if (bytes) {
        munmap((void *)bytes, n);
    }
    snprintf(what, sizeof what, "file %s", file);
    cmn_files_compare(what, text, t);
}
