/* The handle of engine/net.h for Darknet's struct. Only engine/ and hooks/ include this file. All
 * functions are local. */
#ifndef CMN_DARKNET_NET_H
#define CMN_DARKNET_NET_H

struct cmn_net;
struct network;

/* Returns the handle of that network, valid as long as the network lives. It is the network's
 * address, so nothing is allocated or freed. Where Darknet passes networks by value, the handle is
 * that of the trainer's own struct; copies share its layers. */
static inline struct cmn_net *cmn_net_of(struct network *net)
{
    return (struct cmn_net *)net;
}

/* Returns the network of a handle. */
static inline struct network *cmn_network(const struct cmn_net *net)
{
    return (struct network *)net;
}

/* Returns why the weights in a file with this revision in its head do not fit the network, or NULL:
 * pjreddie's and AlexeyAB's Darknet write some layers in different ways. The text is static and
 * valid until the next call. */
const char *cmn_net_weights_refusal(const struct network *net, int revision);

#endif
