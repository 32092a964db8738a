/* From pjreddie's Darknet to the handle of engine/net.h. For engine/ and hooks/ alone. All
 * local. */
#ifndef CMN_DARKNET_NET_H
#define CMN_DARKNET_NET_H

struct cmn_net;
struct network;

/* The handle of that network, as long as it lives. This Darknet passes its networks by address,
 * so the handle is that address: nothing is allocated or freed. */
struct cmn_net *cmn_net_of(struct network *net);

/* The way back. */
struct network *cmn_network(const struct cmn_net *net);

/* Whether the network trains on a GPU. */
int cmn_net_on_gpu(const struct cmn_net *net);

#endif
