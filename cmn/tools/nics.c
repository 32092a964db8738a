#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/host_info.h"

/* A setting of the MPI library, whether it came from mpiexec, the environment or a file; "" when there is
 * no such setting. */
static void mpi_setting(const char *name, char *value, size_t bytes)
{
    char text[4096] = ""; /* MPI_T copies the whole text, however long */
    MPI_T_cvar_handle handle;
    int index, count = 0;

    value[0] = '\0';
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) {
        return;
    }
    if (count < (int)sizeof text && MPI_T_cvar_read(handle, text) == MPI_SUCCESS) {
        snprintf(value, bytes, "%.*s", (int)bytes - 1, text);
    }
    MPI_T_cvar_handle_free(&handle);
}

static void settings(struct cmn_host_info *f)
{
    int provided;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
        return;
    }
    mpi_setting("btl_tcp_if_include", f->include, sizeof f->include);
    mpi_setting("btl_tcp_if_exclude", f->exclude, sizeof f->exclude);
    MPI_T_finalize();
}

static void interfaces(struct cmn_host_info *f)
{
    struct ifaddrs *all, *i;

    f->nics = 0;
    if (getifaddrs(&all)) {
        return;
    }
    for (i = all; i && f->nics < CMN_NICS; i = i->ifa_next) {
        struct cmn_nic *nic = &f->nic[f->nics];
        struct sockaddr_in address, mask;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !i->ifa_netmask ||
            !(i->ifa_flags & IFF_UP)) {
            continue;
        }
        memcpy(&address, i->ifa_addr, sizeof address);
        memcpy(&mask, i->ifa_netmask, sizeof mask);
        snprintf(nic->name, sizeof nic->name, "%s", i->ifa_name);
        nic->address = ntohl(address.sin_addr.s_addr);
        nic->bits = __builtin_popcount(mask.sin_addr.s_addr);
        f->nics++;
    }
    freeifaddrs(all);
}

void cmn_host_info_nics(struct cmn_host_info *f)
{
    settings(f);
    interfaces(f);
}

const char *cmn_nics_text(char *text, size_t bytes)
{
    struct cmn_host_info f;
    size_t used = 0;

    interfaces(&f);
    snprintf(text, bytes, "none");
    for (int i = 0; i < f.nics && used < bytes; i++) {
        if (f.nic[i].address >> 24 != 127) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     f.nic[i].name);
        }
    }
    return text;
}
