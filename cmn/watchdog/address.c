#include "watchdog/address.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nics.h"

socklen_t cmn_address_bytes(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* MPI's lists decide; without them the loopback counts on its turn alone. */
static int may_be_used(const struct cmn_nic *nic, int loopback)
{
    const char *include = getenv("OMPI_MCA_btl_tcp_if_include");
    const char *exclude = getenv("OMPI_MCA_btl_tcp_if_exclude");

    if (include && include[0]) {
        return cmn_nic_in_list(nic, include);
    }
    return cmn_nic_is_loopback(nic) == loopback && !(exclude && cmn_nic_in_list(nic, exclude));
}

static int listen_on(struct sockaddr_storage *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)address, cmn_address_bytes(address)) ||
                    listen(fd, 64) || getsockname(fd, (struct sockaddr *)address, &bytes))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void cmn_address_listen(struct cmn_address *place, int fd[CMN_WATCH_ADDRESSES])
{
    struct cmn_nic nic[4 * CMN_NICS];
    int n = cmn_nics(AF_UNSPEC, nic, 4 * CMN_NICS);

    memset(place, 0, sizeof *place);
    for (int loopback = 0; loopback < 2 && place->n == 0; loopback++) {
        for (int i = 0; i < n && place->n < CMN_WATCH_ADDRESSES; i++) {
            int found = -1;
            if (may_be_used(&nic[i], loopback)) {
                place->address[place->n] = nic[i].address;
                found = listen_on(&place->address[place->n]);
            }
            if (found >= 0) {
                fd[place->n++] = found;
            }
        }
    }
}
