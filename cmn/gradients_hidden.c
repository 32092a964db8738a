/* What recurrent layers carry from one step to the next. */
#include "gradients.h"

#include "darknet.h"

int cmn_gradients_hidden(const struct network *net, int i, struct cmn_hidden *hidden)
{
    for (int k = 0; k < net->n; k++) {
        const layer *l = &net->layers[k];
        float *const carried[] = {l->type == GRU ? l->state : NULL,
                                  l->type == LSTM ? l->h_cpu : NULL,
                                  l->type == LSTM ? l->c_cpu : NULL};
        for (int what = 0; what < 3; what++) {
            if (carried[what] && i-- == 0) {
                *hidden =
                    (struct cmn_hidden){k, carried[what], (size_t)l->outputs, (size_t)l->batch};
                return 1;
            }
        }
    }
    return 0;
}
