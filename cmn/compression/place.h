/* Where a compressor's block lies, in the CPU's or the GPU's memory, and what it does there. Messages go
 * from the CPU's memory: a GPU's floats are copied to and from page-locked memory, in the order of
 * the calls, on a stream. Local. What fails ends the job. */
#ifndef CMN_PLACE_H
#define CMN_PLACE_H

#include <stddef.h>

#include "compression/lowrank.h"

struct cmn_place;

/* For a block that is cut into so many shards; on a GPU all of it is queued on `stream`, and nothing
 * has to be loaded later. */
struct cmn_place *cmn_place_open(int on_gpu, void *stream, int shards);
/* Frees all memory that it gave, too. */
void cmn_place_close(struct cmn_place *p);
int cmn_place_on_gpu(const struct cmn_place *p);

/* Blocking. Zeroed memory where the block lies; of the CPU, for messages. */
void *cmn_place_memory(struct cmn_place *p, size_t bytes);
void *cmn_place_host(struct cmn_place *p, size_t bytes);

/* Not blocking. `host` becomes what lies at `from`, where the block is; they may be the same. Whether
 * the latest such copy of a shard has ended. */
void cmn_place_out(struct cmn_place *p, int shard, void *host, const void *from, size_t bytes);
int cmn_place_is_out(const struct cmn_place *p, int shard);

/* Not blocking. The other way; on a GPU `host` may be written again once a later copy out has
 * ended. */
void cmn_place_back(struct cmn_place *p, void *to, const void *host, size_t bytes);

/* ---- as in lowrank.h; not blocking ---- */

void cmn_place_left(struct cmn_place *p, const struct cmn_lowrank *s, float *m, const float *fresh,
                    const float *q, float *to);
void cmn_place_right(struct cmn_place *p, const struct cmn_lowrank *s, const float *m,
                     const float *from, float *q);
void cmn_place_take(struct cmn_place *p, const struct cmn_lowrank *s, float *m, float *sum,
                    const float *from, const float *own, const float *q);

#endif
