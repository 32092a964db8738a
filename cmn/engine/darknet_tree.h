/* What differs between the trees of Darknet that engine/ and hooks/ are compiled with: pjreddie's
 * or, with CMN_ALEXEYAB, AlexeyAB's. For these two rooms alone. */
#ifndef CMN_DARKNET_TREE_H
#define CMN_DARKNET_TREE_H

#ifdef CMN_ALEXEYAB

#include "box.h"
#include "data.h"
#include "image.h"
#include "list.h"
#include "network.h"
#include "parser.h"
#include "tree.h"
#include "utils.h"

/* No header of its own declares it. */
void reset_network_state(network *net, int b);

/* Networks are passed by value. */
#define CMN_NETWORK(net) (*(net))

#else

#include "darknet.h"
#include "image.h"
#include "network.h"
#include "tree.h"

#define CMN_NETWORK(net) (net)

#endif

#endif
