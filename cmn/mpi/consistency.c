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

#include "mpi/files.h"
#include "base/log.h"

/* A file's bytes, mapped; *n of them. NULL with errno, which is 0 for an empty file. */
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

/* A hash of the loaded, read-only segments, without the header and notes, which refer to
 * debugging sections and so to folder names. 0: no ELF file of this kind. */
static uint64_t hash_code(const unsigned char *bytes, size_t n)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
    uint64_t hash = 0;

    if (n < sizeof head) {
        return 0;
    }
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof part || head.e_phoff > n ||
        (n - head.e_phoff) / sizeof part < head.e_phnum) {
        return 0;
    }
    for (int i = 0; i < head.e_phnum; i++) {
        memcpy(&part, bytes + head.e_phoff + (size_t)i * sizeof part, sizeof part);
        if (part.p_type != PT_LOAD || part.p_flags & PF_W || part.p_offset == 0 ||
            part.p_offset > n || part.p_filesz > n - part.p_offset) {
            continue;
        }
        hash = XXH3_64bits_withSeed(bytes + part.p_offset, part.p_filesz, hash);
    }
    return hash;
}

void cmn_compare_program(const struct cmn_topology *t)
{
    size_t n = 0;
    const unsigned char *bytes = map("/proc/self/exe", &n);
    uint64_t hash = bytes ? hash_code(bytes, n) : 0;
    char text[128];

    if (bytes) {
        munmap((void *)bytes, n);
    }
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
