/* Where rank 0 listens for processes of the job's other hosts, over TCP connections apart from MPI,
 * and what they prove with that they belong to the job. */
#ifndef CMN_LISTENER_H
#define CMN_LISTENER_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "mpi/topology.h"

enum {
    CMN_KEY = 32,
    CMN_ADDRESSES = 8,
    CMN_BACKLOG = 128 /* connections that wait for one to be accepted */
};

/* What all ranks know. */
struct cmn_addresses {
    int n; /* 0: nobody listens */
    struct sockaddr_storage address[CMN_ADDRESSES];
};

struct cmn_listener {
    struct cmn_addresses at;
    unsigned char key[CMN_KEY]; /* MPI alone has carried it */

    /* on rank 0 */
    int fd[CMN_ADDRESSES]; /* not blocking, one for each address */
    struct cmn_host *host; /* of each node */
    int hosts;
};

/* Collective, blocking. Rank 0 listens on a free port of each of its host's addresses that MPI may
 * use for TCP, and all learn a new key. */
void cmn_listener_open(struct cmn_listener *l, const struct cmn_topology *t);

/* Local, on rank 0, not blocking. The next connection at address i, with `flags` as accept4() has
 * them, or -1 with errno. `foreign`: no host of the job is known to have that address, as behind a
 * NAT. */
int cmn_listener_accept(const struct cmn_listener *l, int i, int flags, int *foreign);

/* Local. */
void cmn_listener_close(struct cmn_listener *l);

/* The bytes of an address of IPv4 or IPv6. */
socklen_t cmn_address_bytes(const struct sockaddr_storage *a);

#endif
