/* What comes over the connection between a rank and rank 0, which serves its files (cmn_data=root):
 * from a peer that is unauthenticated, or from one that has the key. */
#include "fuzz.h"

/* For what lies behind the greetings. */
#include "data/root_files.c"

/* MOST: what is sent stays in the kernel. */
enum { NAME_AT = 200, MOST = 16 };

/* Names that are served: of a file with a few bytes, of none, and of what is no regular file. The
 * seeds have them. */
static void serve_names(void)
{
    static const char content[] = "a picture";
    static int known;
    int fd;

    if (known) {
        return;
    }
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (write(fd, content, sizeof content) == sizeof content && dup2(fd, NAME_AT) == NAME_AT) {
        cmn_root_files_allow("/dev/fd/200");
        cmn_root_files_allow("/dev/null");
        cmn_root_files_allow("/dev");
        cmn_root_files_allow("/dev/fd/201"); /* which is not there */
        known = 1;
    }
    close(fd);
    if (fuzz_memory_keep) {
        fuzz_memory_keep();
    }
}

static void be_rank_0(int fd, int greets)
{
    struct client c = {.fd = fd};
    unsigned char mine[NONCE] = {1}, theirs[NONCE] = {2};
    uint64_t number = 0;

    if (!greets || greet_client(&c, mine, theirs) == 0) {
        while (number < MOST && serve_next(fd, number, mine, theirs) == 0) {
            number++;
        }
    }
}

static void be_another_rank(int fd, int greets)
{
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    uint64_t wrong, number = 0;

    self.fd = fd;
    memset(self.mine, 0, NONCE);
    self.asked = self.answered = 0;
    self.broken = 0;
    if (!greets || greet_server(fd) == 0) {
        while (number < MOST && fetch("a picture", file, &wrong) == 0) {
            number++;
        }
    }
    self.fd = -1;
    close(file);
}

/* The first byte says which end this is, and whether the peer is to be authenticated first. */
void fuzz_served(const uint8_t *data, size_t size)
{
    int ends[2];

    if (size == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        return;
    }
    serve_names();
    (void)!send(ends[1], data + 1, size - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(ends[1], SHUT_WR);
    if (data[0] & 1) {
        be_rank_0(ends[0], data[0] & 2);
    } else {
        be_another_rank(ends[0], data[0] & 2);
    }
    close(ends[0]);
    close(ends[1]);
}
