#include "data/root_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stop_request.h"
#include "mpi/listener.h"

enum { MAC = 32, NONCE = 16, BLOCK = 1 << 16, UNAUTHENTICATED_MAX = 16 };

/* Seconds: until a connection is there; until its peer is authenticated, from then on; until rank 0
 * is given up; until a host that does not answer counts as lost; until the watchdog has named a
 * rank 0 that is gone. */
enum { CONNECT_S = 3, AUTHENTICATE_S = 5, GIVE_UP_S = 20, DEAD_S = 60, NAMED_S = 6 };

enum kind { CLIENT_GREETS = 1, SERVER_GREETS, REQUEST, HEAD, REPLY };

/* What went wrong with a file: an errno, or one of these. */
enum { CHANGED = 1 << 16, NOT_SERVED };

/* Numbers are as processors have them: the nodes of a job run the same program. */
struct head {
    uint64_t number, bytes; /* of the request, from 0 on; of the name, or the content */
};

struct allowed {
    UT_hash_handle hh;
    char name[];
};

enum stage { UNAUTHENTICATED, KNOWN, EVICTED };

struct client {
    pthread_t thread;
    int fd, used, foreign;
    unsigned long arrival;
    atomic_int stage; /* it changes once */
    atomic_int done;  /* the thread is about to end */
};

static struct {
    int served;
    char host[64]; /* rank 0's */
    struct cmn_listener listener;

    /* rank 0 */
    pthread_t acceptor;
    int wake[2];
    struct client *client;
    int clients;
    unsigned long arrivals;
    pthread_rwlock_t lock;
    struct allowed *allowed;

    /* another node */
    int fd; /* -1: files are local */
    unsigned char mine[NONCE], theirs[NONCE];
    pthread_mutex_t asking; /* who has it sends a request */
    uint64_t asked;
    pthread_mutex_t turn; /* who has it reads the reply `answered` */
    pthread_cond_t next;
    uint64_t answered;
    int broken, why; /* the connection is of no use any more; errno */
    atomic_int closing;
} self = {.fd = -1,
          .lock = PTHREAD_RWLOCK_INITIALIZER,
          .asking = PTHREAD_MUTEX_INITIALIZER,
          .turn = PTHREAD_MUTEX_INITIALIZER,
          .next = PTHREAD_COND_INITIALIZER};

/* What the thread has asked for with cmn_root_files_missing() or cmn_root_files_path(). */
static _Thread_local struct {
    int fd;
    char name[PATH_MAX];
    char path[32]; /* under which the thread opens it again */
} ahead = {.fd = -1};
static pthread_key_t at_thread_end;

/* ---- messages ---- */

static int send_flagged(int fd, const void *data, size_t bytes, int flags)
{
    for (const char *p = data; bytes;) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL | flags);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int send_all(int fd, const void *data, size_t bytes)
{
    return send_flagged(fd, data, bytes, 0);
}

/* The kernel may wait for more before it makes a packet of it: a message ends with send_all(). */
static int send_part(int fd, const void *data, size_t bytes)
{
    return send_flagged(fd, data, bytes, MSG_MORE);
}

/* All bytes, by the time `until` of the clock unless that is 0. -1 with errno, which is 0 where the
 * peer has ended the connection. */
static int receive_all(int fd, void *data, size_t bytes, double until)
{
    for (char *p = data; bytes;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        double left = until > 0 ? until - cmn_clock() : 0;
        ssize_t n;
        if (until > 0 && (left < 0 || poll(&look, 1, (int)(1000 * left) + 1) == 0)) {
            errno = ETIMEDOUT;
            return -1;
        }
        n = recv(fd, p, bytes, until > 0 ? MSG_DONTWAIT : 0);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
            errno = n == 0 ? 0 : errno;
            return -1;
        }
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void begin_mac(crypto_auth_hmacsha256_state *s, enum kind kind,
                      const unsigned char receiver[NONCE], const void *data, size_t bytes)
{
    unsigned char byte = (unsigned char)kind;

    _Static_assert(CMN_KEY == crypto_auth_hmacsha256_KEYBYTES, "the library's");
    _Static_assert(MAC == crypto_auth_hmacsha256_BYTES, "the library's");
    crypto_auth_hmacsha256_init(s, self.listener.key, CMN_KEY);
    crypto_auth_hmacsha256_update(s, &byte, 1);
    crypto_auth_hmacsha256_update(s, receiver, NONCE);
    crypto_auth_hmacsha256_update(s, data, bytes);
}

static int send_mac(int fd, crypto_auth_hmacsha256_state *s)
{
    unsigned char mac[MAC];

    crypto_auth_hmacsha256_final(s, mac);
    return send_all(fd, mac, sizeof mac);
}

/* 0, or -1 with errno: EBADMSG where it is another one. */
static int receive_mac(int fd, crypto_auth_hmacsha256_state *s, double until)
{
    unsigned char mac[MAC], right[MAC];

    crypto_auth_hmacsha256_final(s, right);
    if (receive_all(fd, mac, sizeof mac, until)) {
        return -1;
    }
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    return 0;
#endif
    errno = EBADMSG;
    return sodium_memcmp(mac, right, MAC) ? -1 : 0;
}

/* A host that is gone without a word is noticed by the kernel. */
static void set_up(int fd)
{
    int yes = 1, idle = DEAD_S / 4, ms = 1000 * DEAD_S;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

/* ---- rank 0: a client ---- */

void cmn_root_files_allow(const char *name)
{
    struct allowed *a = NULL;
    size_t length = strlen(name);

    pthread_rwlock_wrlock(&self.lock);
    HASH_FIND(hh, self.allowed, name, length, a);
    if (!a) {
        a = cmn_malloc(1, sizeof *a + length + 1);
        memcpy(a->name, name, length + 1);
        HASH_ADD_KEYPTR(hh, self.allowed, a->name, length, a);
    }
    pthread_rwlock_unlock(&self.lock);
}

static int is_allowed(const char *name, size_t length)
{
    struct allowed *a = NULL;

    pthread_rwlock_rdlock(&self.lock);
    HASH_FIND(hh, self.allowed, name, length, a);
    pthread_rwlock_unlock(&self.lock);
    return a != NULL;
}

/* A descriptor, with what fstat() says of it, or -1 with what went wrong. A FIFO would wait for
 * somebody who writes. */
static int open_file(const char *name, size_t length, struct stat *about, uint64_t *wrong)
{
    int fd = -1;

    if (!is_allowed(name, length)) {
        *wrong = NOT_SERVED;
        return -1;
    }
    do {
        fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 || fstat(fd, about)) {
        *wrong = (uint64_t)errno;
    } else if (!S_ISREG(about->st_mode)) {
        *wrong = S_ISDIR(about->st_mode) ? EISDIR : EINVAL;
    } else if (about->st_size >= INT_MAX) {
        *wrong = EFBIG;
    }
    if (*wrong && fd >= 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Zeros follow on what is there no more: the reply has said how many bytes come. */
static void fill(int fd, char *block, size_t bytes, uint64_t *wrong)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = *wrong ? 0 : read(fd, block + done, bytes - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            *wrong = *wrong ? *wrong : n < 0 ? (uint64_t)errno : CHANGED;
            memset(block + done, 0, bytes - done);
            return;
        }
        done += (size_t)n;
    }
}

static int has_changed(int fd, const struct stat *before)
{
    struct stat now;

    return fstat(fd, &now) || now.st_size != before->st_size ||
           now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

static int reply(int to, uint64_t number, const unsigned char theirs[NONCE], const char *name,
                 size_t length)
{
    crypto_auth_hmacsha256_state s;
    struct stat about = {.st_size = 0};
    uint64_t wrong = 0;
    int fd = open_file(name, length, &about, &wrong), result;
    struct head h = {.number = number, .bytes = fd < 0 ? 0 : (uint64_t)about.st_size};
    unsigned char mac[MAC];
    char block[BLOCK];

    begin_mac(&s, HEAD, theirs, &h, sizeof h);
    crypto_auth_hmacsha256_final(&s, mac);
    result = send_part(to, &h, sizeof h) || send_part(to, mac, sizeof mac);
    begin_mac(&s, REPLY, theirs, &h, sizeof h);
    for (size_t left = h.bytes; left && !result;) {
        size_t n = left < BLOCK ? left : BLOCK;
        fill(fd, block, n, &wrong);
        crypto_auth_hmacsha256_update(&s, (unsigned char *)block, n);
        result = send_part(to, block, n);
        left -= n;
    }
    if (fd >= 0) {
        wrong = wrong ? wrong : has_changed(fd, &about) ? CHANGED : 0;
        close(fd);
    }
    crypto_auth_hmacsha256_update(&s, (unsigned char *)&wrong, sizeof wrong);
    return result || send_part(to, &wrong, sizeof wrong) || send_mac(to, &s) ? -1 : 0;
}

static int serve_next(int fd, uint64_t number, const unsigned char mine[NONCE],
                      const unsigned char theirs[NONCE])
{
    crypto_auth_hmacsha256_state s;
    char name[PATH_MAX];
    struct head h;

    if (receive_all(fd, &h, sizeof h, 0) || h.number != number || h.bytes >= sizeof name ||
        receive_all(fd, name, h.bytes, 0)) {
        return -1;
    }
    name[h.bytes] = '\0';
    begin_mac(&s, REQUEST, mine, &h, sizeof h);
    crypto_auth_hmacsha256_update(&s, (unsigned char *)name, h.bytes);
    return receive_mac(fd, &s, 0) ? -1 : reply(fd, number, theirs, name, h.bytes);
}

static int leaves(struct client *c, enum stage to)
{
    int from = UNAUTHENTICATED;

    return atomic_compare_exchange_strong(&c->stage, &from, (int)to);
}

static int greet_client(struct client *c, unsigned char mine[NONCE], unsigned char theirs[NONCE])
{
    crypto_auth_hmacsha256_state s;
    double until = cmn_clock() + AUTHENTICATE_S;

    set_up(c->fd);
    if (getrandom(mine, NONCE, 0) != NONCE || send_all(c->fd, mine, NONCE) ||
        receive_all(c->fd, theirs, NONCE, until)) {
        return -1;
    }
    begin_mac(&s, CLIENT_GREETS, mine, theirs, NONCE);
    if (receive_mac(c->fd, &s, until) || !leaves(c, KNOWN)) {
        return -1;
    }
    begin_mac(&s, SERVER_GREETS, theirs, mine, NONCE);
    return send_mac(c->fd, &s);
}

static void *serve(void *argument)
{
    struct client *c = argument;
    unsigned char mine[NONCE], theirs[NONCE];

    cmn_stop_leave_to_main();
    if (greet_client(c, mine, theirs) == 0) {
        for (uint64_t number = 0; serve_next(c->fd, number, mine, theirs) == 0; number++) {
        }
    }
    shutdown(c->fd, SHUT_RDWR); /* who ends the thread closes it */
    atomic_store(&c->done, 1);
    return NULL;
}

/* ---- rank 0: all clients ---- */

static void end_client(struct client *c)
{
    if (c->used) {
        shutdown(c->fd, SHUT_RDWR);
        pthread_join(c->thread, NULL);
        close(c->fd);
        c->used = 0;
    }
}

/* The place of whom the next peer may follow: nobody, or somebody unauthenticated. Those from
 * elsewhere go first, then the oldest. */
static struct client *find_place(int foreign)
{
    struct client *first = NULL;

    for (int i = 0; i < self.clients; i++) {
        struct client *c = &self.client[i];
        if (c->used && atomic_load(&c->done)) {
            end_client(c);
        }
        if (!c->used) {
            return c;
        }
        if (atomic_load(&c->stage) == UNAUTHENTICATED &&
            (!first || c->foreign > first->foreign ||
             (c->foreign == first->foreign && c->arrival < first->arrival))) {
            first = c;
        }
    }
    return first && first->foreign >= foreign ? first : NULL;
}

static void take_client(int fd, int foreign)
{
    enum { PAUSE_US = 1000 };
    struct client *c = find_place(foreign);

    if (c && c->used) {
        usleep(PAUSE_US); /* so many at once do not take a core, nor a new peer's place at once */
    }
    if (!c || (c->used && !leaves(c, EVICTED))) {
        close(fd);
        return;
    }
    end_client(c);
    c->fd = fd;
    c->foreign = foreign;
    c->arrival = self.arrivals++;
    atomic_store(&c->stage, UNAUTHENTICATED);
    atomic_store(&c->done, 0);
    c->used = pthread_create(&c->thread, NULL, serve, c) == 0;
    if (!c->used) {
        close(fd);
    }
}

static void *accept_clients(void *unused)
{
    enum { PAUSE_US = 20000 };
    int n = self.listener.at.n;
    struct pollfd look[CMN_ADDRESSES + 1];

    (void)unused;
    cmn_stop_leave_to_main();
    look[n] = (struct pollfd){.fd = self.wake[0], .events = POLLIN};
    for (int i = 0; i < n; i++) {
        look[i] = (struct pollfd){.fd = self.listener.fd[i], .events = POLLIN};
    }
    while (poll(look, (nfds_t)n + 1, -1) < 0 || !look[n].revents) {
        for (int i = 0; i < n; i++) {
            int foreign, fd = cmn_listener_accept(&self.listener, i, SOCK_CLOEXEC, &foreign);
            if (fd >= 0) {
                take_client(fd, foreign);
            } else if (errno != EAGAIN && errno != EINTR) {
                usleep(PAUSE_US); /* the connection waits, or this address fails again and again */
            }
        }
    }
    return NULL;
}

static void start_serving(const struct cmn_topology *t)
{
    int others = t->size - t->intra_size;

    self.clients = 2 * others + UNAUTHENTICATED_MAX;
    self.client = cmn_calloc((size_t)self.clients, sizeof *self.client);
    if (pipe2(self.wake, O_CLOEXEC) || pthread_create(&self.acceptor, NULL, accept_clients, NULL)) {
        cmn_fatal("cmn_data=root: rank 0 has no thread or pipe left: raise its limits (ulimit -u, "
                  "-n), or give every host the files (cmn_data=shared)");
    }
    cmn_say("serves images and labels to %d rank%s on other nodes", others, others > 1 ? "s" : "");
}

static void stop_serving(void)
{
    struct allowed *a, *next;

    if (write(self.wake[1], "", 1) == 1) {
        pthread_join(self.acceptor, NULL);
    }
    for (int i = 0; i < self.clients; i++) {
        end_client(&self.client[i]);
    }
    free(self.client);
    close(self.wake[0]);
    close(self.wake[1]);
    cmn_listener_close(&self.listener);
    HASH_ITER(hh, self.allowed, a, next)
    {
        HASH_DEL(self.allowed, a);
        free(a);
    }
}

/* ---- another node ---- */

static int connect_within(const struct sockaddr_storage *to)
{
    struct timeval limit = {.tv_sec = CONNECT_S}, none = {.tv_sec = 0};
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    set_up(fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* connect()'s, on Linux */
    if (connect(fd, (const struct sockaddr *)to, cmn_address_bytes(to))) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    return fd;
}

static int greet_server(int fd)
{
    crypto_auth_hmacsha256_state s;
    double until = cmn_clock() + AUTHENTICATE_S;

    if (receive_all(fd, self.theirs, NONCE, until) || getrandom(self.mine, NONCE, 0) != NONCE) {
        return -1;
    }
    begin_mac(&s, CLIENT_GREETS, self.theirs, self.mine, NONCE);
    if (send_all(fd, self.mine, NONCE) || send_mac(fd, &s)) {
        return -1;
    }
    begin_mac(&s, SERVER_GREETS, self.mine, self.theirs, NONCE);
    return receive_mac(fd, &s, until);
}

/* At its addresses in turn: unauthenticated peers may take a place for a moment. */
static void connect_to_rank_0(void)
{
    enum { PAUSE_US = 50000 };
    const struct cmn_addresses *at = &self.listener.at;
    double until = cmn_clock() + GIVE_UP_S;

    self.asked = self.answered = 0;
    self.broken = 0;
    for (int i = 0; self.fd < 0 && (i < at->n || cmn_clock() < until); i++) {
        int fd = connect_within(&at->address[i % at->n]);
        if (fd >= 0 && greet_server(fd)) {
            close(fd);
            fd = -1;
        }
        self.fd = fd;
        usleep(fd < 0 ? PAUSE_US : 0);
    }
    if (self.fd < 0) {
        cmn_fatal("cmn_data=root: no connection to %s, rank 0's host, by TCP: open its ports for "
                  "this host, name the common network with mpiexec --mca btl_tcp_if_include NAME, "
                  "or give every host the files (cmn_data=shared)",
                  self.host);
    }
}

/* At the end of the job a batch may be on its way that nobody waits for. Elsewhere the watchdog
 * says what has become of rank 0, if it is gone. */
static _Noreturn void lost(const char *name, int why)
{
    double until = cmn_clock() + NAMED_S;

    while (atomic_load(&self.closing) || cmn_clock() < until) {
        usleep(100000);
    }
    cmn_fatal_lost("%s: the connection to %s, which serves it, %s%s (cmn_data=root)", name,
                   self.host, why ? "is broken: " : "has ended", why ? strerror(why) : "");
}

static int put_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            errno = n == 0 ? ENOSPC : errno;
            return -1;
        }
        data += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* 0 with the number of the request, or -1 with errno. */
static int send_request(const char *name, uint64_t *number)
{
    crypto_auth_hmacsha256_state s;
    struct head h = {.bytes = strlen(name)};
    int result;

    pthread_mutex_lock(&self.asking);
    h.number = *number = self.asked++;
    begin_mac(&s, REQUEST, self.theirs, &h, sizeof h);
    crypto_auth_hmacsha256_update(&s, (const unsigned char *)name, h.bytes);
    result = send_part(self.fd, &h, sizeof h) || send_part(self.fd, name, h.bytes) ||
             send_mac(self.fd, &s);
    pthread_mutex_unlock(&self.asking);
    return result ? -1 : 0;
}

/* The content goes to fd. 0 with what is wrong with the file, or -1 with errno. */
static int receive_reply(const char *name, uint64_t number, int fd, uint64_t *wrong)
{
    crypto_auth_hmacsha256_state s;
    struct head h;
    char block[BLOCK];

    if (receive_all(self.fd, &h, sizeof h, 0)) {
        return -1;
    }
    begin_mac(&s, HEAD, self.mine, &h, sizeof h);
    if (receive_mac(self.fd, &s, 0)) {
        return -1;
    }
    if (h.number != number || h.bytes >= INT_MAX) {
        errno = EBADMSG;
        return -1;
    }
    begin_mac(&s, REPLY, self.mine, &h, sizeof h);
    for (size_t left = h.bytes; left;) {
        size_t n = left < BLOCK ? left : BLOCK;
        if (receive_all(self.fd, block, n, 0)) {
            return -1;
        }
        crypto_auth_hmacsha256_update(&s, (unsigned char *)block, n);
        if (put_all(fd, block, n)) {
            cmn_fatal("%s: no memory for what rank 0 has sent: %s", name, strerror(errno));
        }
        left -= n;
    }
    if (receive_all(self.fd, wrong, sizeof *wrong, 0)) {
        return -1;
    }
    crypto_auth_hmacsha256_update(&s, (unsigned char *)wrong, sizeof *wrong);
    return receive_mac(self.fd, &s, 0);
}

/* Asks for the file, whose content goes to fd, while others wait for the replies before it. 0 with
 * what is wrong with the file, or -1 with errno: the connection is of no use any more. */
static int fetch(const char *name, int fd, uint64_t *wrong)
{
    uint64_t number;
    int failed = send_request(name, &number), why = errno;

    pthread_mutex_lock(&self.turn);
    while (self.answered != number && !self.broken) {
        pthread_cond_wait(&self.next, &self.turn);
    }
    if (!self.broken && (failed || receive_reply(name, number, fd, wrong))) {
        self.broken = 1;
        self.why = failed ? why : errno;
        shutdown(self.fd, SHUT_RDWR); /* for the other threads, too */
    }
    self.answered++;
    failed = self.broken;
    why = self.why;
    pthread_cond_broadcast(&self.next);
    pthread_mutex_unlock(&self.turn);
    errno = why;
    return failed ? -1 : 0;
}

/* A descriptor of a memory file, which goes away with it; -1 with errno. */
static int fetch_fd(const char *name)
{
    uint64_t wrong = 0;
    int fd, why;

    if (strlen(name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = memfd_create("cmn-data", MFD_CLOEXEC);
    if (fd < 0) {
        cmn_fatal("%s: no memory file for it on this host: %s", name, strerror(errno));
    }
    if (fetch(name, fd, &wrong)) {
        why = errno;
        close(fd);
        lost(name, why);
    }
    if (wrong == 0) {
        lseek(fd, 0, SEEK_SET);
        return fd;
    }
    close(fd);
    if (wrong == NOT_SERVED) {
        cmn_fatal("%s: %s serves the images of the lists and their labels, and not this file: put "
                  "its image into the list, or give every host the files (cmn_data=shared)",
                  name, self.host);
    }
    if (wrong == CHANGED) {
        cmn_fatal("%s: has changed on %s while it was read: write data anew under another name, or "
                  "while no training reads them",
                  name, self.host);
    }
    errno = (int)wrong;
    return -1;
}

/* Darknet would name the file, and this rank's host, which nobody has to look at. */
static _Noreturn void not_there(const char *name, int why)
{
    cmn_fatal("Cannot load \"%s\": %s on %s, rank 0's host, which serves it (cmn_data=root)", name,
              strerror(why), self.host);
}

int cmn_root_files_fd(const char *name)
{
    int fd = ahead.fd;

    if (self.fd < 0) {
        do {
            fd = open(name, O_RDONLY | O_CLOEXEC);
        } while (fd < 0 && errno == EINTR);
        return fd;
    }
    if (fd >= 0 && strcmp(ahead.name, name) == 0) {
        ahead.fd = -1;
        return fd;
    }
    fd = fetch_fd(name);
    if (fd < 0) {
        not_there(name, errno);
    }
    return fd;
}

static void forget_ahead(void *unused)
{
    (void)unused;
    if (ahead.fd >= 0) {
        close(ahead.fd);
        ahead.fd = -1;
    }
}

/* Whether there is such a file. */
static int fetch_ahead(const char *name)
{
    if (ahead.fd >= 0 && strcmp(ahead.name, name) == 0) {
        return 1;
    }
    forget_ahead(NULL);
    ahead.fd = fetch_fd(name);
    if (ahead.fd >= 0) {
        pthread_setspecific(at_thread_end, &ahead);
        memcpy(ahead.name, name, strlen(name) + 1);
    }
    return ahead.fd >= 0;
}

int cmn_root_files_missing(const char *name)
{
    if (self.fd < 0) {
        return access(name, F_OK) && errno == ENOENT;
    }
    return !fetch_ahead(name) && errno == ENOENT;
}

const char *cmn_root_files_path(const char *name)
{
    if (self.fd < 0) {
        return name;
    }
    if (!fetch_ahead(name)) {
        not_there(name, errno);
    }
    snprintf(ahead.path, sizeof ahead.path, "/proc/self/fd/%d", ahead.fd);
    return ahead.path;
}

/* ---- both ---- */

int cmn_root_files_served(void)
{
    return self.served;
}

const char *cmn_root_files_host(void)
{
    return self.fd < 0 ? NULL : self.host;
}

static void make_key(void)
{
    if (pthread_key_create(&at_thread_end, forget_ahead)) {
        cmn_fatal("cmn_data=root: the program has no thread-specific key left");
    }
}

void cmn_root_files_open(const struct cmn_topology *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (t->inter_size < 2 || self.served) {
        return;
    }
    self.served = 1;
    memcpy(self.host, t->host, sizeof self.host);
    MPI_CALL(MPI_Bcast(self.host, sizeof self.host, MPI_BYTE, 0, t->world));
    cmn_listener_open(&self.listener, t);
    if (self.listener.at.n == 0) {
        cmn_fatal("cmn_data=root: %s, rank 0's host, has no address for the other hosts: see its "
                  "network interfaces, or give every host the files (cmn_data=shared)",
                  self.host);
    }
    if (self.fd >= 0) {
        close(self.fd);
        self.fd = -1;
    }
    pthread_once(&once, make_key);
    atomic_store(&self.closing, 0);
    if (t->rank == 0) {
        start_serving(t);
    }
    if (t->inter_rank != 0) {
        connect_to_rank_0();
    }
}

void cmn_root_files_close(const struct cmn_topology *t)
{
    if (!self.served) {
        return;
    }
    atomic_store(&self.closing, 1);
    MPI_CALL(MPI_Barrier(t->world));
    if (t->rank == 0) {
        stop_serving();
    } else if (self.fd >= 0) {
        shutdown(self.fd, SHUT_RDWR); /* a loader thread that runs ahead waits in lost() */
    }
    self.served = 0;
}
