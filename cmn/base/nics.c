#include "base/nics.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

uint32_t cmn_nic_ipv4(const struct cmn_nic *nic)
{
    struct sockaddr_in v4;

    memcpy(&v4, &nic->address, sizeof v4);
    return nic->address.ss_family == AF_INET ? ntohl(v4.sin_addr.s_addr) : 0;
}

static struct in6_addr ipv6(const struct cmn_nic *nic)
{
    struct sockaddr_in6 v6;

    memcpy(&v6, &nic->address, sizeof v6);
    return v6.sin6_addr;
}

/* Fills *nic and returns 1. Returns 0 if the address is of no use to other hosts, or of another
 * family. */
static int take(struct cmn_nic *nic, const struct ifaddrs *i, int family)
{
    sa_family_t has = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    struct in6_addr address;
    struct sockaddr_in mask;

    if ((has != AF_INET && has != AF_INET6) || (family != AF_UNSPEC && has != family) ||
        !(i->ifa_flags & IFF_UP) || !i->ifa_netmask) {
        return 0;
    }
    *nic = (struct cmn_nic){.bits = 0};
    snprintf(nic->name, sizeof nic->name, "%s", i->ifa_name);
    if (has == AF_INET) {
        memcpy(&nic->address, i->ifa_addr, sizeof(struct sockaddr_in));
        memcpy(&mask, i->ifa_netmask, sizeof mask);
        nic->bits = __builtin_popcount(mask.sin_addr.s_addr);
        return 1;
    }
    memcpy(&nic->address, i->ifa_netmask, sizeof(struct sockaddr_in6));
    address = ipv6(nic);
    for (size_t k = 0; k < sizeof address.s6_addr; k++) {
        nic->bits += __builtin_popcount(address.s6_addr[k]);
    }
    memcpy(&nic->address, i->ifa_addr, sizeof(struct sockaddr_in6));
    address = ipv6(nic);
    return !IN6_IS_ADDR_LINKLOCAL(&address);
}

int cmn_nics(int family, struct cmn_nic *nic, int most)
{
    struct ifaddrs *all;
    int n = 0;

    if (getifaddrs(&all)) {
        return 0;
    }
    for (const struct ifaddrs *i = all; i && n < most; i = i->ifa_next) {
        n += take(&nic[n], i, family);
    }
    freeifaddrs(all);
    return n;
}

int cmn_nic_is_loopback(const struct cmn_nic *nic)
{
    struct in6_addr address = ipv6(nic);

    return nic->address.ss_family == AF_INET ? cmn_nic_ipv4(nic) >> 24 == 127
                                             : IN6_IS_ADDR_LOOPBACK(&address);
}

static int matches(const struct cmn_nic *nic, const char *entry, size_t n)
{
    unsigned a, b, c, d, bits = 32;
    uint32_t mask;
    char word[64];

    if (n >= sizeof word) {
        return 0;
    }
    snprintf(word, sizeof word, "%.*s", (int)n, entry);
    if (sscanf(word, "%u.%u.%u.%u/%u", &a, &b, &c, &d, &bits) < 4 || bits > 32) {
        return !strcmp(word, nic->name);
    }
    mask = bits ? ~UINT32_C(0) << (32 - bits) : 0;
    return nic->address.ss_family == AF_INET &&
           ((cmn_nic_ipv4(nic) ^ (a << 24 | b << 16 | c << 8 | d)) & mask) == 0;
}

int cmn_nic_in_list(const struct cmn_nic *nic, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n && matches(nic, list, n)) {
            return 1;
        }
        list += n + (list[n] == ',');
    }
    return 0;
}

const char *cmn_nics_text(char *text, size_t bytes)
{
    struct cmn_nic nic[CMN_NICS];
    int n = cmn_nics(AF_INET, nic, CMN_NICS);
    size_t used = 0;

    snprintf(text, bytes, "none");
    for (int i = 0; i < n && used < bytes; i++) {
        if (!cmn_nic_is_loopback(&nic[i])) {
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", nic[i].name);
        }
    }
    return text;
}
