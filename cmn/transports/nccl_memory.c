/* GPU memory that is registered with NCCL. From registered memory of ncclMemAlloc() NCCL sends, and
 * adds in switches, without a copy of its own. Memory whose registration fails is used like any
 * other. */
#include "transports/nccl.h"

static struct {
    int blocks, refused;
    char why[128]; /* reason of the last refusal */
} registrations;

const char *cmn_nccl_registrations(int *blocks, int *refused)
{
    *blocks = registrations.blocks;
    *refused = registrations.refused;
    return registrations.refused ? registrations.why : NULL;
}

#ifdef CMN_NCCL

#include <stdio.h>
#include <stdlib.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/device.h"
#include "mpi/kernels.h"
#include "transports/nccl_internal.h"

struct block {
    void *memory;
    void *handle; /* NCCL's registration, or NULL */
    int is_ours;  /* to be freed with this block */
    int by_nccl;  /* free it by ncclMemFree(), not cudaFree() */
    struct block *next;
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
/* The library found at run time may be older than nccl.h: then these functions are NULL. */
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#else
#define ncclMemAlloc ((ncclResult_t(*)(void **, size_t))NULL)
#define ncclMemFree ((ncclResult_t(*)(void *))NULL)
#define ncclCommRegister ((ncclResult_t(*)(ncclComm_t, void *, size_t, void **))NULL)
#define ncclCommDeregister ((ncclResult_t(*)(ncclComm_t, void *))NULL)
#endif

static int knows_memory(void)
{
    return ncclMemAlloc && ncclMemFree && ncclCommRegister && ncclCommDeregister;
}

/* Adds b to the transport's blocks, and registers its `bytes` with NCCL. */
static void tell(struct nccl *c, struct block *b, size_t bytes)
{
    ncclResult_t code;

    b->next = c->block;
    c->block = b;
    if (!knows_memory()) {
        return;
    }
    code = ncclCommRegister(c->comm, b->memory, bytes, &b->handle);
    registrations.blocks++;
    if (cmn_nccl_is_error(code)) {
        b->handle = NULL;
        registrations.refused++;
        snprintf(registrations.why, sizeof registrations.why, "%s: %s", c->group->name,
                 ncclGetErrorString(code));
        return;
    }
    cmn_nccl_check(c, cmn_nccl_await_taken(c, code));
}

/* Allocates and registers `bytes` bytes on the GPU. Returns NULL with a reason if there is no
 * memory. */
static struct block *new_block(struct nccl *c, size_t bytes)
{
    struct block *b = cmn_calloc(1, sizeof *b);

    b->is_ours = 1;
    b->by_nccl = knows_memory() && ncclMemAlloc(&b->memory, bytes) == ncclSuccess;
    if (!b->by_nccl) {
        cudaGetLastError(); /* otherwise Darknet's next check would report this error */
        if (cmn_device_check(cudaMalloc(&b->memory, bytes), "cudaMalloc")) {
            cmn_fail_in("%zu bytes on the GPU", bytes);
            free(b);
            return NULL;
        }
    }
    tell(c, b, bytes);
    return b;
}

/* Deregisters a block; an aborted communicator has no registrations left. */
static void forget(struct nccl *c, struct block *b)
{
    if (b->handle && !c->aborted) {
        ncclCommDeregister(c->comm, b->handle);
    }
    b->handle = NULL;
}

static void free_block(struct block *b)
{
    if (b->is_ours && b->by_nccl) {
        ncclMemFree(b->memory);
    } else if (b->is_ours) {
        cudaFree(b->memory);
    }
    free(b);
}

int cmn_nccl_memory(void *self, void *other, size_t floats, float **memory)
{
    struct nccl *c = self;
    size_t bytes = floats * sizeof **memory;
    struct block *b;

    cmn_nccl_start(c, "memory", floats);
    b = new_block(c, bytes);
    if (!b || cmn_device_check(cudaMemset(b->memory, 0, bytes), "cudaMemset") ||
        cmn_device_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) {
        return -1;
    }
    if (other) {
        struct block *known = cmn_calloc(1, sizeof *known);
        known->memory = b->memory;
        cmn_nccl_start(other, "memory", floats);
        tell(other, known, bytes);
    }
    *memory = b->memory;
    return 0;
}

static void drop_half(struct nccl *c)
{
    for (struct block **at = &c->block; *at; at = &(*at)->next) {
        if ((*at)->memory == c->half) {
            struct block *b = *at;
            *at = b->next;
            forget(c, b);
            free_block(b);
            break;
        }
    }
    c->half = NULL;
    c->half_room = 0;
}

void cmn_nccl_new_half(struct nccl *c, size_t n, enum cmn_dtype type)
{
    struct block *b;

    drop_half(c);
    b = new_block(c, n * sizeof(short));
    if (!b) {
        cmn_nccl_failed(c);
        cmn_fatal_reason();
    }
    c->half = b->memory;
    cmn_nccl_check_cuda(c, cmn_kernel_load_casts(type), "cudaFuncGetAttributes");
    c->half_room = n;
}

void cmn_nccl_forget_blocks(struct nccl *c)
{
    for (struct block *b = c->block; b; b = b->next) {
        forget(c, b);
    }
}

void cmn_nccl_free_blocks(struct nccl *c)
{
    while (c->block) {
        struct block *b = c->block;
        c->block = b->next;
        free_block(b);
    }
}

#endif
