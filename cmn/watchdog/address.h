/* Where the watchdog of rank 0 can be reached over TCP. */
#ifndef CMN_WATCH_ADDRESS_H
#define CMN_WATCH_ADDRESS_H

#include <sys/socket.h>

enum { CMN_WATCH_ADDRESSES = 8 };

struct cmn_address {
    int n;
    struct sockaddr_storage address[CMN_WATCH_ADDRESSES];
};

/* Local. Listens on a free port of each of this host's addresses that MPI may use for TCP (its btl_tcp_if_include and
 * btl_tcp_if_exclude, where the environment has them), or of all but the loopback's: fd[i] is the socket of
 * place->address[i]. place->n is 0 where nothing can be had. */
void cmn_address_listen(struct cmn_address *place, int fd[CMN_WATCH_ADDRESSES]);

/* Bytes of such an address, for connect(). */
socklen_t cmn_address_bytes(const struct sockaddr_storage *a);

#endif
