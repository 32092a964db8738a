/* Files of rank 0's host for ranks on other hosts (cmn_data=root): images and their labels.
 *
 * Rank 0 has a thread that listens (mpi/listener.h), and one for each rank of another node, so no
 * step waits for them. A rank has one TCP connection to rank 0. Each of its loader threads sends its
 * request at once, so there are as many under way as it has such threads, and rank 0 answers one
 * after the other:
 *
 *     server   a nonce
 *     client   a nonce of its own, and a MAC        the server knows the client
 *     server   a MAC                                the client knows the server
 *     client   a request: number, bytes of the name; the name; a MAC
 *     server   a reply: the number, bytes, a MAC; the content; what went wrong, a MAC
 *
 * A MAC (HMAC-SHA256 with the listener's key) is over the kind of message, the receiver's nonce and
 * the message, so what was recorded is of no use in another connection, in the other direction or a
 * second time. Contents are authentic and not encrypted, as those of MPI.
 *
 * Only names that cmn_root_files_allow() was given are served, letter by letter; one that is a link
 * is followed, as a training without this does. A file that changes while it is read is an error.
 * Until it is authenticated, a peer has a few bytes and seconds, and makes room for the next. */
#ifndef CMN_ROOT_FILES_H
#define CMN_ROOT_FILES_H

#include "mpi/topology.h"

/* Collective, blocking. With one node nothing happens. Ends the job where rank 0 has no address
 * that the others reach. */
void cmn_root_files_open(const struct cmn_topology *t);

/* Local, thread-safe. Whether files of rank 0's host are served in this job, on any rank. */
int cmn_root_files_served(void);

/* Local, thread-safe; on rank 0. Takes a name that others may ask for. */
void cmn_root_files_allow(const char *name);

/* Local, thread-safe, blocking. As open(name, O_RDONLY): a descriptor, or -1 with errno. On another
 * node than rank 0's it is that of a memory file with the content that rank 0 has read. A broken
 * connection ends the job there, and so does a file that rank 0's host lacks, does not serve, or that
 * has changed, with the name of that host. The caller closes it. */
int cmn_root_files_fd(const char *name);

/* Local, thread-safe, blocking. Whether there is no such file, here or on rank 0's host, for one that
 * the thread opens next: its content comes with the answer. */
int cmn_root_files_missing(const char *name);

/* Local, thread-safe, blocking. For who opens files by their names: `name`, or on another node than
 * rank 0's that of a memory file with the content, which the thread has until it asks for another
 * one, or ends. What ends the job in cmn_root_files_fd() does so here. */
const char *cmn_root_files_path(const char *name);

/* Local, thread-safe. The name of rank 0's host on another node of a job with served files, or
 * NULL. */
const char *cmn_root_files_host(void);

/* Collective, blocking. Ends threads and connections. */
void cmn_root_files_close(const struct cmn_topology *t);

#endif
