/* Files of rank 0 for ranks on other nodes: what comes, what is refused, who may ask, and what
 * becomes of a connection. Each rank is a node. */
#include "ranks/ranks.h"

/* For its connections, and peers that do with them what it never does. */
#include "data/root_files.c"

#include <sys/resource.h>

#include "nets.h"

static struct cmn_topology nodes;
static char folder[PATH_MAX]; /* on all ranks: they share the disk, and look whether it was used */

static char *path_of(const char *name)
{
    static char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int begin(void **state)
{
    char *name;

    (void)state;
    if (top.rank == 0) {
        name = nets_file("");
        unlink(name);
        snprintf(folder, sizeof folder, "%s", name);
        free(name);
        CHECK(!mkdir(folder, 0700));
    }
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, top.world);
    cmn_topology_open_as(&nodes, top.rank);
    cmn_root_files_open(&nodes);
    return 0;
}

static int end(void **state)
{
    char command[PATH_MAX + 16];

    (void)state;
    cmn_root_files_close(&nodes);
    cmn_topology_close(&nodes);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return top.rank == 0 ? system(command) : 0;
}

/* On rank 0: such a file, which others may ask for. */
static void make(const char *name, size_t bytes)
{
    FILE *file = fopen(path_of(name), "wb");

    for (size_t i = 0; i < bytes; i++) {
        fputc((int)(i * 2654435761u >> 13 & 255), file);
    }
    CHECK(file && !fclose(file));
    cmn_root_files_allow(path_of(name));
}

static int is_served(int fd)
{
    char link[64], target[64] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, target, sizeof target - 1) > 0 && strstr(target, "memfd:cmn-data");
}

/* Whether the file comes, whole and from rank 0. */
static int comes(const char *name, size_t bytes)
{
    char *content = malloc(bytes + 1);
    int fd = cmn_root_files_fd(path_of(name)), right;

    right = fd >= 0 && is_served(fd) == (top.rank > 0) &&
            read(fd, content, bytes + 1) == (ssize_t)bytes;
    for (size_t i = 0; right && i < bytes; i++) {
        right = (unsigned char)content[i] == (i * 2654435761u >> 13 & 255);
    }
    close(fd);
    free(content);
    return right;
}

/* ---- what comes ---- */

static const size_t sizes[] = {0, 1, 300, BLOCK - 1, BLOCK, BLOCK + 1, 3000000};

static void *read_sizes(void *unused)
{
    char name[16];
    size_t right = 0;

    (void)unused;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        snprintf(name, sizeof name, "%zu.png", sizes[i]);
        char path[PATH_MAX + 64]; /* path_of() is for one thread */
        snprintf(path, sizeof path, "%s/%s", folder, name);
        int fd = cmn_root_files_fd(path);
        struct stat about = {.st_size = -1};
        right += fd >= 0 && !fstat(fd, &about) && about.st_size == (off_t)sizes[i];
        close(fd);
    }
    return right == COUNT(sizes) ? NULL : folder;
}

/* On another rank than 0: who reads that looks at rank 0's host. */
static void lacking(const char *name, const char *why)
{
    const char *said = fatal_of(close(cmn_root_files_fd(name[0] == '/' ? name : path_of(name))));
    char right[256];

    snprintf(right, sizeof right, "\": %s on %s, rank 0's host", why, self.host);
    CHECK_SAYING(said && strstr(said, name) && strstr(said, right), "%s: %s", name,
                 said ? said : "served");
}

static void contents_are_those_of_rank_0(void **state)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    const char *said;
    char name[16];
    void *wrong;

    (void)state;
    for (size_t i = 0; i < COUNT(sizes) && top.rank == 0; i++) {
        snprintf(name, sizeof name, "%zu.png", sizes[i]);
        make(name, sizes[i]);
    }
    if (top.rank == 0) {
        cmn_root_files_allow(path_of("gone.txt"));
    }
    MPI_Barrier(top.world);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        snprintf(name, sizeof name, "%zu.png", sizes[i]);
        CHECK_SAYING(comes(name, sizes[i]), "%s", name);
    }
    if (top.rank == 0) {
        errno = 0;
        CHECK(cmn_root_files_fd(path_of("gone.txt")) == -1 && errno == ENOENT);
        CHECK(cmn_root_files_missing(path_of("gone.txt")));
    } else {
        lacking("gone.txt", "No such file or directory");
        said = fatal_of(cmn_root_files_path(path_of("gone.txt")));
        CHECK_SAYING(said && strstr(said, "gone.txt"), "%s", said ? said : "");
        CHECK(cmn_root_files_missing(path_of("gone.txt")));
    }
    CHECK(!cmn_root_files_missing(path_of("300.png")));
    CHECK(comes("1.png", 1));
    CHECK(comes("300.png", 300)); /* has come already */
    for (int i = 0; i < THREADS; i++) {
        CHECK(!pthread_create(&thread[i], NULL, read_sizes, NULL));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &wrong);
        CHECK(!wrong);
    }
    fail_on_all_ranks();
}

/* Whether a file of that name has so many bytes; below, in a thread of its own. */
static void *open_by_name(void *unused)
{
    static const char *const names[] = {"300.png", "1.png", "1.png"};
    size_t right = 0;

    (void)unused;
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[PATH_MAX + 64]; /* path_of() is for one thread */
        struct stat about = {.st_size = -1};
        const char *here;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        here = cmn_root_files_path(path);
        right += !stat(here, &about) && about.st_size == atoi(names[i]) &&
                 (strcmp(here, path) != 0) == (top.rank > 0);
    }
    return right == COUNT(names) ? NULL : folder;
}

/* And the copy goes away with the thread. Rank 0 has no copies, and its threads that serve the others
 * open files meanwhile. */
static void a_copy_has_a_name(void **state)
{
    pthread_t thread;
    void *wrong;
    int before;

    (void)state;
    if (top.rank == 0) {
        make("1.png", 1);
        make("300.png", 300);
    }
    MPI_Barrier(top.world);
    before = descriptors();
    CHECK(!pthread_create(&thread, NULL, open_by_name, NULL));
    pthread_join(thread, &wrong);
    CHECK(!wrong);
    CHECK_SAYING(top.rank == 0 || descriptors() == before, "%d, %d before", descriptors(), before);
    fail_on_all_ranks();
}

/* Asks, and gets no answer. */
static void *ask_in_vain(void *argument)
{
    uint64_t wrong;
    int fd = memfd_create("asked", MFD_CLOEXEC);

    errno = EIO;
    *(int *)argument = fetch("a.png", fd, &wrong) == -1 && errno == 0;
    close(fd);
    return NULL;
}

/* All of a rank's threads have asked before the first one has its answer; when the connection ends,
 * it does so for all of them. */
static void requests_do_not_wait_for_answers(void **state)
{
    enum { THREADS = 3, SECONDS = 60, LENGTH = 5 };
    char rest[LENGTH + MAC];
    pthread_t thread[THREADS];
    int ends[2], right[THREADS], kept = self.fd;
    struct head h;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
    }
    MPI_Barrier(top.world);
    if (top.rank > 0) {
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        self.fd = ends[0];
        for (int i = 0; i < THREADS; i++) {
            CHECK(!pthread_create(&thread[i], NULL, ask_in_vain, &right[i]));
        }
        for (uint64_t i = 0; i < THREADS; i++) {
            CHECK_SAYING(!receive_all(ends[1], &h, sizeof h, cmn_clock() + SECONDS) &&
                             h.number == i && h.bytes == LENGTH &&
                             !receive_all(ends[1], rest, sizeof rest, 0),
                         "request %d", (int)i);
        }
        close(ends[1]);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
            CHECK_SAYING(right[i], "thread %d", i);
        }
        close(ends[0]);
        self.fd = kept;
        self.asked = self.answered = 0;
        self.broken = 0;
    }
    CHECK(comes("a.png", 300));
    fail_on_all_ranks();
}

/* ---- what does not ---- */

static void refused(const char *name)
{
    const char *said = top.rank ? fatal_of(close(cmn_root_files_fd(name))) : "and not this file";

    CHECK_SAYING(said && strstr(said, "and not this file"), "%s: %s", name, said ? said : "served");
}

/* No name but those of the lists, whatever it leads to; a listed link is what people made it. */
static void only_names_of_the_lists_are_served(void **state)
{
    char other[PATH_MAX + 128];
    const char *base;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
        CHECK(!symlink("a.png", path_of("link.png")) && !symlink("a.png", path_of("listed.png")));
        CHECK(!mkfifo(path_of("fifo.png"), 0600) && !mkdir(path_of("folder.png"), 0700));
        cmn_root_files_allow(path_of("listed.png"));
        cmn_root_files_allow(path_of("fifo.png"));
        cmn_root_files_allow(path_of("folder.png"));
        cmn_root_files_allow("/dev/zero");
    }
    MPI_Barrier(top.world);
    base = strrchr(folder, '/') + 1;
    CHECK(comes("a.png", 300));
    CHECK(comes("listed.png", 300));
    refused("/etc/passwd");
    refused("../../../../../../etc/passwd");
    refused("");
    refused(path_of("link.png"));
    refused(path_of("./a.png"));
    refused(path_of("a.png/"));
    refused(path_of("a.png/../../../../etc/passwd"));
    snprintf(other, sizeof other, "%s/../%s/a.png", folder, base);
    refused(other);
    if (top.rank > 0) {
        lacking("fifo.png", "Invalid argument");
        lacking("folder.png", "Is a directory");
        lacking("/dev/zero", "Invalid argument");
    }
    CHECK(comes("a.png", 300));
    fail_on_all_ranks();
}

/* ---- between a rank and rank 0 ---- */

static struct relay {
    int client, server; /* where it writes what comes from the other one */
    long stop_at;       /* so many bytes from rank 0 pass, then `go` must be set */
    long flip_at;       /* the byte whose lowest bit it changes; -1: none */
    atomic_int stopped, go, cut;
    pthread_t thread;
} relay;

static void *pass_on(void *unused)
{
    char bytes[4096];
    long from_0 = 0;

    (void)unused;
    for (;;) {
        struct pollfd look[2] = {{relay.client, POLLIN, 0}, {relay.server, POLLIN, 0}};
        poll(look, 2, -1);
        for (int i = 0; i < 2; i++) {
            long room = i && from_0 < relay.stop_at && relay.stop_at - from_0 < (long)sizeof bytes
                            ? relay.stop_at - from_0
                            : (long)sizeof bytes;
            ssize_t n = look[i].revents ? recv(look[i].fd, bytes, (size_t)room, 0) : 1;
            if (n <= 0) {
                shutdown(relay.client, SHUT_RDWR);
                shutdown(relay.server, SHUT_RDWR);
                return NULL;
            }
            if (!look[i].revents) {
                continue;
            }
            if (i && relay.flip_at >= from_0 && relay.flip_at < from_0 + n) {
                bytes[relay.flip_at - from_0] ^= 1;
            }
            from_0 += i ? n : 0;
            send_all(i ? relay.client : relay.server, bytes, (size_t)n);
            if (i && from_0 == relay.stop_at) {
                atomic_store(&relay.stopped, 1);
                while (!atomic_load(&relay.go)) {
                    usleep(1000);
                }
                if (atomic_load(&relay.cut)) {
                    shutdown(relay.client, SHUT_RDWR);
                }
            }
        }
    }
}

/* On another rank than 0: what it says to rank 0 goes through a thread from here on. */
static void begin_relay(long stop_at, long flip_at)
{
    int ends[2], small = 1 << 16;

    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    relay = (struct relay){.client = ends[1], .stop_at = stop_at, .flip_at = flip_at};
    relay.server = dup(self.fd);
    setsockopt(relay.server, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    dup2(ends[0], self.fd);
    close(ends[0]);
    pthread_create(&relay.thread, NULL, pass_on, NULL);
}

static void end_relay(void)
{
    shutdown(relay.client, SHUT_RDWR);
    pthread_join(relay.thread, NULL);
    close(relay.client);
    close(relay.server);
}

struct asked {
    char name[PATH_MAX + 64];
    pthread_t thread;
    int fd;
    off_t bytes;
    uint64_t wrong;
};

static void *ask(void *argument)
{
    struct asked *a = argument;
    struct stat about = {.st_size = -1};

    a->fd = memfd_create("asked", MFD_CLOEXEC);
    CHECK(fetch(a->name, a->fd, &a->wrong) == 0);
    fstat(a->fd, &about);
    a->bytes = about.st_size;
    close(a->fd);
    return NULL;
}

/* Larger than what the kernel keeps for a connection: rank 0 has not read all of it. */
enum { LARGE = 8 << 20 };

/* What becomes of a file while rank 0 reads it: another one has its name, it grows, is written in
 * its midst, or cut. The first is none of its concern. */
static void a_file_that_changes_is_no_picture(void **state)
{
    enum { VANISHES, GROWS, DIFFERS, SHRINKS, WAYS };
    struct asked a = {.fd = -1};
    int fd;

    (void)state;
    for (int way = 0; way < WAYS && top.size == 2; way++) {
        if (top.rank == 0) {
            make("large.png", 10);
            CHECK(!truncate(path_of("large.png"), LARGE));
        }
        MPI_Barrier(top.world);
        a.wrong = 0;
        strcpy(a.name, path_of("large.png"));
        if (top.rank == 1) {
            begin_relay(100000, -1);
            CHECK(!pthread_create(&a.thread, NULL, ask, &a));
            while (!atomic_load(&relay.stopped)) {
                usleep(1000);
            }
        }
        MPI_Barrier(top.world);
        if (top.rank == 0) {
            usleep(20000); /* times of files go in steps */
            fd = open(a.name, O_WRONLY);
            CHECK(way != VANISHES || !unlink(a.name));
            CHECK(way != GROWS || !ftruncate(fd, LARGE + 1));
            CHECK(way != DIFFERS || pwrite(fd, "x", 1, 20) == 1);
            CHECK(way != SHRINKS || !ftruncate(fd, LARGE / 2));
            close(fd);
        }
        MPI_Barrier(top.world);
        if (top.rank == 1) {
            atomic_store(&relay.go, 1);
            pthread_join(a.thread, NULL);
            CHECK_SAYING(a.bytes == LARGE, "way %d: %ld bytes", way, (long)a.bytes);
            CHECK_SAYING(a.wrong == (way == VANISHES ? 0 : CHANGED), "way %d: %d", way,
                         (int)a.wrong);
        }
        /* A rank has one connection. */
        MPI_Barrier(top.world);
        if (top.rank == 1) {
            end_relay();
        }
        end(state);
        begin(state);
    }
    fail_on_all_ranks();
}

/* Not a byte less than the slow stranger below has. */
static void drip(void)
{
    int fd = connect_within(&self.listener.at.address[0]), sent = 0;

    while (sent < NONCE + MAC - 1 && send(fd, "x", 1, MSG_NOSIGNAL) == 1) {
        usleep(250000);
        sent++;
    }
    CHECK_SAYING(sent < NONCE + MAC - 1, "%d bytes", sent);
    close(fd);
}

/* One line each. Meanwhile somebody sends a byte now and then to rank 0, and is not waited for. */
static void a_broken_connection_is_an_end(void **state)
{
    static const struct {
        long stop_at, flip_at;
        const char *says;
    } way[] = {
        {200, -1, "a.png: the connection to %s, which serves it, has ended (cmn_data=root)"},
        {-1, 200, "a.png: the connection to %s, which serves it, is broken: Bad message"},
        {-1, 8, "a.png: the connection to %s, which serves it, is broken: Bad message"},
        {-1, (long)sizeof(struct head) + MAC + 300, "which serves it, is broken: Bad message"},
    };
    char right[256];
    const char *said;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
    }
    MPI_Barrier(top.world);
    if (top.rank == 0 && top.size > 1) {
        drip();
    }
    for (int i = top.rank - 1; top.rank && i == top.rank - 1; i += (int)COUNT(way)) {
        begin_relay(way[i].stop_at, way[i].flip_at);
        atomic_store(&relay.cut, way[i].stop_at > 0);
        atomic_store(&relay.go, 1);
        said = fatal_of(comes("a.png", 300));
        snprintf(right, sizeof right, way[i].says, self.host);
        CHECK_SAYING(said && strstr(said, right) && check_lost, "way %d: %s", i,
                     said ? said : "served");
        end_relay();
    }
    fail_on_all_ranks();
}

/* ---- a rank that does what none does ---- */

enum wrong { FINE, TWICE, NUMBER, LENGTH, OTHER_MAC, OTHER_NONCE, WRONGS };

/* Whether rank 0 answers that on a connection of its own. */
static int answers(enum wrong how, const char *name, size_t bytes)
{
    unsigned char mine[NONCE], theirs[NONCE];
    int fd = connect_within(&self.listener.at.address[0]), answered = 0;
    struct head h = {.number = how == NUMBER, .bytes = bytes}, r;
    crypto_auth_hmacsha256_state s;
    unsigned char mac[MAC];
    uint64_t wrong;

    memcpy(mine, self.mine, NONCE);
    memcpy(theirs, self.theirs, NONCE);
    CHECK(fd >= 0 && !greet_server(fd));
    for (int times = 0; times <= (how == TWICE); times++) {
        begin_mac(&s, REQUEST, how == OTHER_NONCE ? theirs : self.theirs, &h, sizeof h);
        crypto_auth_hmacsha256_update(&s, (const unsigned char *)name, bytes);
        crypto_auth_hmacsha256_final(&s, mac);
        mac[0] ^= how == OTHER_MAC;
        h.bytes = how == LENGTH ? UINT64_C(1) << 40 : h.bytes;
        CHECK(!send_all(fd, &h, sizeof h));
        (void)(send_all(fd, name, bytes) || send_all(fd, mac, MAC));
        answered = !receive_all(fd, &r, sizeof r, 0) && r.bytes == 0 &&
                   !receive_all(fd, mac, MAC, 0) && !receive_all(fd, &wrong, sizeof wrong, 0) &&
                   !receive_all(fd, mac, MAC, 0) && wrong == NOT_SERVED;
        CHECK(times == 1 || how != TWICE || answered);
    }
    close(fd);
    memcpy(self.mine, mine, NONCE);
    memcpy(self.theirs, theirs, NONCE);
    return answered;
}

static void a_peer_with_the_key_is_checked_all_the_same(void **state)
{
    char name[PATH_MAX + 80];
    size_t n;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
    }
    MPI_Barrier(top.world);
    n = (size_t)snprintf(name, sizeof name, "%s", path_of("a.png"));
    memcpy(name + n + 1, "/etc/passwd", 12); /* behind the end of the name, for who sees that */
    for (enum wrong how = 0; how < WRONGS && top.rank == 1; how++) {
        CHECK_SAYING(answers(how, name, n + 12) == (how == FINE), "%d", how);
    }
    CHECK(comes("a.png", 300));
    fail_on_all_ranks();
}

/* On rank 0: threads of connections that have not ended. */
static int served_now(void)
{
    int n = 0;

    for (int i = 0; i < self.clients; i++) {
        n += self.client[i].used && !atomic_load(&self.client[i].done);
    }
    return n;
}

enum cut { IN_NONCE, IN_HEAD, IN_NAME, IN_MAC, IN_REPLY, CUTS };

/* A connection that ends there. */
static void ask_and_leave(enum cut where, const char *name)
{
    unsigned char mine[NONCE], theirs[NONCE], mac[MAC];
    int fd = connect_within(&self.listener.at.address[0]);
    struct head h = {.number = 0, .bytes = strlen(name)};
    crypto_auth_hmacsha256_state s;

    memcpy(mine, self.mine, NONCE);
    memcpy(theirs, self.theirs, NONCE);
    CHECK(fd >= 0);
    if (where == IN_NONCE) {
        CHECK(!send_all(fd, mine, NONCE / 2));
    } else {
        CHECK(!greet_server(fd));
        begin_mac(&s, REQUEST, self.theirs, &h, sizeof h);
        crypto_auth_hmacsha256_update(&s, (const unsigned char *)name, h.bytes);
        crypto_auth_hmacsha256_final(&s, mac);
        CHECK(!send_all(fd, &h, where == IN_HEAD ? sizeof h / 2 : sizeof h));
        CHECK(where < IN_NAME || !send_all(fd, name, where == IN_NAME ? 3 : h.bytes));
        CHECK(where < IN_MAC || !send_all(fd, mac, where == IN_MAC ? MAC / 2 : MAC));
        CHECK(where < IN_REPLY || !receive_all(fd, &h, sizeof h, 0));
    }
    close(fd);
    memcpy(self.mine, mine, NONCE);
    memcpy(self.theirs, theirs, NONCE);
}

/* Rank 0's thread ends with its connection, wherever that breaks off, and does not ask again and
 * again. */
static void a_connection_that_breaks_off_ends_its_thread(void **state)
{
    enum { SECONDS = 120 };
    double until;

    (void)state;
    if (top.rank == 0) {
        make("large.png", 10);
        CHECK(!truncate(path_of("large.png"), LARGE));
    }
    for (enum cut where = 0; where < CUTS && top.size > 1; where++) {
        MPI_Barrier(top.world);
        if (top.rank == 1) {
            ask_and_leave(where, path_of("large.png"));
        }
        MPI_Barrier(top.world);
        until = cmn_clock() + SECONDS;
        while (top.rank == 0 && served_now() > top.size - 1 && cmn_clock() < until) {
            usleep(1000);
        }
        CHECK_SAYING(top.rank || served_now() <= top.size - 1, "cut %d: %d", (int)where,
                     served_now());
    }
    fail_on_all_ranks();
}

/* ---- strangers ---- */

/* Fewer than wait for rank 0 in the kernel. */
enum { STRANGERS = CMN_BACKLOG - 8 };

/* On rank 0: what they do follows from i; returns how many are held open. */
static int come(int *stranger, uint32_t from)
{
    const struct sockaddr_storage *to = &self.listener.at.address[0];
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr = {htonl(from)}};
    struct linger at_once = {1, 0};
    int held = 0;

    for (int i = 0; i < STRANGERS; i++) {
        int fd = socket(to->ss_family, SOCK_STREAM, 0);
        if (from && to->ss_family == AF_INET) {
            CHECK(!bind(fd, (struct sockaddr *)&source, sizeof source));
        }
        CHECK(!connect(fd, (const struct sockaddr *)to, cmn_address_bytes(to)));
        if (i % 4 == 0) {
            for (int k = 0; k < 100; k++) {
                (void)!send(fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
            }
        } else if (i % 4 == 1) {
            (void)!send(fd, "12345678", 8, MSG_NOSIGNAL);
        } else if (i % 4 == 2) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            close(fd);
            continue;
        }
        stranger[held++] = fd;
    }
    return held;
}

static int threads(void)
{
    struct stat about = {.st_nlink = 0};

    stat("/proc/self/task", &about);
    return (int)about.st_nlink - 2;
}

/* From an address that no host of the job has, and from a host of the job. They keep nobody out,
 * neither those who are there nor one who comes, and take few places. */
static void strangers_have_few_places(void **state)
{
    static const uint32_t from[] = {0x7f000002, 0};
    int stranger[STRANGERS], held, before = descriptors(), most = threads() + 2 * top.size + 16;
    int kept;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
    }
    MPI_Barrier(top.world);
    for (size_t turn = 0; turn < COUNT(from) && top.size > 1; turn++) {
        held = top.rank == 0 ? come(stranger, from[turn]) : 0;
        CHECK_SAYING(threads() <= most, "%d threads of %d", threads(), most);
        CHECK_SAYING(descriptors() - held - before <= 2 * top.size + 16, "%d more descriptors",
                     descriptors() - held - before);
        MPI_Barrier(top.world);
        CHECK(comes("a.png", 300));
        if (top.rank) {
            kept = self.fd;
            self.fd = connect_within(&self.listener.at.address[0]);
            CHECK(self.fd >= 0 && !greet_server(self.fd));
            self.asked = self.answered = 0;
            CHECK(comes("a.png", 300));
            close(kept);
        }
        MPI_Barrier(top.world);
        while (held) {
            close(stranger[--held]);
        }
    }
    fail_on_all_ranks();
}

/* Rank 0 has no descriptor left below its soft limit, and one who comes is served all the same. */
static void a_soft_limit_of_files_is_raised(void **state)
{
    struct rlimit before, few;
    int next, kept;

    (void)state;
    if (top.rank == 0) {
        make("a.png", 300);
        next = dup(0);
        close(next);
        CHECK(next >= 0 && !getrlimit(RLIMIT_NOFILE, &before));
        few = before;
        few.rlim_cur = (rlim_t)next;
        CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    }
    MPI_Barrier(top.world);
    if (top.rank == 1) {
        kept = self.fd;
        self.fd = -1;
        CHECK_SAYING(!fatal_of(connect_to_rank_0()) && comes("a.png", 300), "%d", self.fd);
        close(kept);
    }
    MPI_Barrier(top.world);
    CHECK(top.rank || !setrlimit(RLIMIT_NOFILE, &before));
    fail_on_all_ranks();
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(contents_are_those_of_rank_0, begin, end),
        cmocka_unit_test_setup_teardown(a_copy_has_a_name, begin, end),
        cmocka_unit_test_setup_teardown(requests_do_not_wait_for_answers, begin, end),
        cmocka_unit_test_setup_teardown(only_names_of_the_lists_are_served, begin, end),
        cmocka_unit_test_setup_teardown(a_file_that_changes_is_no_picture, begin, end),
        cmocka_unit_test_setup_teardown(a_broken_connection_is_an_end, begin, end),
        cmocka_unit_test_setup_teardown(a_peer_with_the_key_is_checked_all_the_same, begin, end),
        cmocka_unit_test_setup_teardown(a_connection_that_breaks_off_ends_its_thread, begin, end),
        cmocka_unit_test_setup_teardown(a_soft_limit_of_files_is_raised, begin, end),
        cmocka_unit_test_setup_teardown(strangers_have_few_places, begin, end),
    };

    return cmocka_run_group_tests_name("root files", tests, NULL, NULL);
}

int main(void)
{
    return ranks_main(group);
}
