/* From Darknet's struct to the handle of engine/net.h. For engine/ and hooks/ alone. All
 * local. */
#ifndef CMN_DARKNET_NET_H
#define CMN_DARKNET_NET_H

struct cmn_net;
struct network;

/* The handle of that network, as long as it lives: its address, so nothing is allocated or freed.
 * Where Darknet passes networks by value it is that of the trainer's own struct; copies share its
 * layers. */
struct cmn_net *cmn_net_of(struct network *net);

/* The way back. */
struct network *cmn_network(const struct cmn_net *net);

/* Input and labels of the copy that trains become those of the handle. */
void cmn_net_take_batch(struct cmn_net *net, const struct network *copy);

/* Why the weights in a file whose head has this revision are not those of the network, or NULL: the
 * two trees of Darknet write some layers in different ways. Static, until the next call. */
const char *cmn_net_weights_refusal(const struct network *net, int revision);

/* Whether the network trains on a GPU. */
int cmn_net_on_gpu(const struct cmn_net *net);

#endif
