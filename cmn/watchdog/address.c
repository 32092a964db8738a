#include "watchdog/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

socklen_t cmn_address_bytes(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* Such an address means something on its own host alone. */
static int link_local(const struct sockaddr *a)
{
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)a;

    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr);
}

/* Whether an entry of MPI's lists, NAME or A.B.C.D/BITS, means this interface. */
static int means(const char *entry, const struct ifaddrs *i)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)i->ifa_addr;
    unsigned part[4], bits, network, mask;

    if (sscanf(entry, "%u.%u.%u.%u/%u", &part[0], &part[1], &part[2], &part[3], &bits) != 5) {
        return !strcmp(entry, i->ifa_name);
    }
    network = part[0] << 24 | part[1] << 16 | part[2] << 8 | part[3];
    mask = bits == 0 ? 0 : bits >= 32 ? ~0U : ~0U << (32 - bits);
    return in->sin_family == AF_INET && ((ntohl(in->sin_addr.s_addr) ^ network) & mask) == 0;
}

static int listed(const char *variable, const struct ifaddrs *i)
{
    const char *list = getenv(variable);
    char copy[1024], *at = copy, *entry;

    snprintf(copy, sizeof copy, "%s", list ? list : "");
    while ((entry = strsep(&at, ","))) {
        if (entry[0] && means(entry, i)) {
            return 1;
        }
    }
    return 0;
}

static int may_be_used(const struct ifaddrs *i, int loopback)
{
    const char *include = getenv("OMPI_MCA_btl_tcp_if_include");

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
        (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) ||
        link_local(i->ifa_addr)) {
        return 0;
    }
    if (include && include[0]) {
        return listed("OMPI_MCA_btl_tcp_if_include", i);
    }
    return !(i->ifa_flags & IFF_LOOPBACK) == !loopback && !listed("OMPI_MCA_btl_tcp_if_exclude", i);
}

static int listen_on(const struct sockaddr *at, struct sockaddr_storage *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memset(address, 0, sizeof *address);
    memcpy(address, at,
           at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    if (fd >= 0 && (bind(fd, (struct sockaddr *)address, cmn_address_bytes(address)) ||
                    listen(fd, 64) || getsockname(fd, (struct sockaddr *)address, &bytes))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void cmn_address_listen(struct cmn_address *place, int fd[CMN_WATCH_ADDRESSES])
{
    struct ifaddrs *all;

    memset(place, 0, sizeof *place);
    if (getifaddrs(&all)) {
        return;
    }
    for (int loopback = 0; loopback < 2 && place->n == 0; loopback++) {
        for (const struct ifaddrs *i = all; i && place->n < CMN_WATCH_ADDRESSES; i = i->ifa_next) {
            int found =
                may_be_used(i, loopback) ? listen_on(i->ifa_addr, &place->address[place->n]) : -1;
            if (found >= 0) {
                fd[place->n++] = found;
            }
        }
    }
    freeifaddrs(all);
}
