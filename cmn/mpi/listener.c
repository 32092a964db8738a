#include "mpi/listener.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/memory.h"
#include "base/nics.h"
#include "base/process.h"

/* The addresses of a host; those of IPv4 as IPv6 writes them. */
enum { NICS = 2 * CMN_NICS };
struct cmn_host {
    struct in6_addr address[NICS]; /* zero: none */
};

socklen_t cmn_address_bytes(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Open MPI's lists decide; without them the loopback counts on its turn alone. */
static int may_be_used(const struct cmn_nic *nic, int loopback)
{
    const char *include = cmn_launcher_networks();
    const char *exclude = cmn_launcher_networks_excluded();

    if (include && include[0]) {
        return cmn_nic_in_list(nic, include);
    }
    return cmn_nic_is_loopback(nic) == loopback && !(exclude && cmn_nic_in_list(nic, exclude));
}

static int listen_on(struct sockaddr_storage *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 &&
        (bind(fd, (struct sockaddr *)address, cmn_address_bytes(address)) ||
         listen(fd, CMN_BACKLOG) || getsockname(fd, (struct sockaddr *)address, &bytes))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static struct in6_addr ip_of(const struct sockaddr_storage *a)
{
    struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    if (a->ss_family == AF_INET6) {
        memcpy(&ip, &((const struct sockaddr_in6 *)a)->sin6_addr, sizeof ip);
    } else {
        memcpy(&ip.s6_addr[12], &((const struct sockaddr_in *)a)->sin_addr, 4);
    }
    return ip;
}

static int has(const struct cmn_host *host, const struct sockaddr_storage *a)
{
    struct in6_addr ip = ip_of(a);

    for (int i = 0; i < NICS; i++) {
        if (!memcmp(&host->address[i], &ip, sizeof ip)) {
            return 1;
        }
    }
    return 0;
}

/* Such as that of docker0, which leads each host to itself. */
static int is_also_elsewhere(const struct cmn_listener *l, const struct sockaddr_storage *a)
{
    for (int i = 1; i < l->hosts; i++) {
        if (has(&l->host[i], a)) {
            return 1;
        }
    }
    return 0;
}

/* Addresses that other hosts have, too, and the loopback's, count where there is no better one:
 * several nodes of one machine. */
static void listen_everywhere(struct cmn_listener *l)
{
    enum { OWN, SHARED, LOOPBACK, TURNS };
    struct cmn_addresses *p = &l->at;
    struct cmn_nic nic[NICS];
    int n = cmn_nics(AF_UNSPEC, nic, NICS);

    for (int turn = OWN; turn < TURNS && p->n == 0; turn++) {
        for (int i = 0; i < n && p->n < CMN_ADDRESSES; i++) {
            if (may_be_used(&nic[i], turn == LOOPBACK) &&
                !(turn == OWN && is_also_elsewhere(l, &nic[i].address))) {
                p->address[p->n] = nic[i].address;
                l->fd[p->n] = listen_on(&p->address[p->n]);
                p->n += l->fd[p->n] >= 0;
            }
        }
    }
}

/* On rank 0: of the first rank of each node, its own first. */
static void learn_hosts(struct cmn_listener *l, const struct cmn_topology *t)
{
    struct cmn_nic nic[NICS];
    int n = cmn_nics(AF_UNSPEC, nic, NICS);
    struct cmn_host mine;

    if (t->intra_rank) {
        return;
    }
    memset(&mine, 0, sizeof mine);
    for (int i = 0; i < n; i++) {
        mine.address[i] = ip_of(&nic[i].address);
    }
    l->hosts = t->inter_size;
    l->host = t->rank == 0 ? cmn_calloc((size_t)l->hosts, sizeof *l->host) : NULL;
    MPI_CALL(MPI_Gather(&mine, sizeof mine, MPI_BYTE, l->host, sizeof mine, MPI_BYTE, 0, t->inter));
}

void cmn_listener_open(struct cmn_listener *l, const struct cmn_topology *t)
{
    memset(l, 0, sizeof *l);
    learn_hosts(l, t);
    /* Without a key nobody connects. */
    if (sodium_init() >= 0 && t->rank == 0 &&
        getrandom(l->key, sizeof l->key, 0) == sizeof l->key) {
        listen_everywhere(l);
    }
    MPI_CALL(MPI_Bcast(l->key, sizeof l->key, MPI_BYTE, 0, t->world));
    MPI_CALL(MPI_Bcast(&l->at, sizeof l->at, MPI_BYTE, 0, t->world));
}

int cmn_listener_accept(const struct cmn_listener *l, int i, int flags, int *foreign)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof from;
    int fd = accept4(l->fd[i], (struct sockaddr *)&from, &bytes, flags);
    long limit;

    /* Of 1024 nodes more come than the usual soft limit of open files has room for. */
    if (fd < 0 && errno == EMFILE) {
        cmn_process_more_files(&limit);
        bytes = sizeof from;
        fd = accept4(l->fd[i], (struct sockaddr *)&from, &bytes, flags);
    }

    *foreign = fd >= 0;
    for (int node = 0; node < l->hosts && *foreign; node++) {
        *foreign = !has(&l->host[node], &from);
    }
    return fd;
}

void cmn_listener_close(struct cmn_listener *l)
{
    for (int i = 0; l->host && i < l->at.n; i++) {
        close(l->fd[i]);
    }
    free(l->host);
    l->host = NULL;
}
