/* nics: the network interfaces of this host, and the lists by which Open MPI's TCP chooses among
 * them. All local and thread-safe. */
#ifndef CMN_NICS_H
#define CMN_NICS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { CMN_NICS = 16 };

/* One address of an interface that is up. */
struct cmn_nic {
    char name[16];
    struct sockaddr_storage address; /* AF_INET or AF_INET6, never IPv6 link-local */
    int bits;                        /* length of the network's prefix */
};

/* Fills nic[] with at most `most` addresses of the family (AF_UNSPEC: of both families). Returns
 * their number, or 0 if the system cannot list them. */
int cmn_nics(int family, struct cmn_nic *nic, int most);

/* Returns whether the address is in 127.0.0.0/8 or is ::1. */
int cmn_nic_is_loopback(const struct cmn_nic *nic);

/* Returns whether a comma-separated list (NAME, A.B.C.D or A.B.C.D/BITS, as in Open MPI's
 * btl_tcp_if_include) contains the interface. */
int cmn_nic_in_list(const struct cmn_nic *nic, const char *list);

/* Returns the address in the host's byte order, or 0 if it is IPv6. */
uint32_t cmn_nic_ipv4(const struct cmn_nic *nic);

/* Writes the names of the interfaces that have an IPv4 address, except the loopback: "eth0,
 * docker0", or "none". Returns `text`. */
const char *cmn_nics_text(char *text, size_t bytes);

#endif
