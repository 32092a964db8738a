#include "base/random.h"

#include <sys/random.h>
#include <unistd.h>

static uint64_t seed_of_job;
static uint64_t common, own;
static _Thread_local uint64_t named;
/* This is NULL in a new thread, since only the main thread may touch the shared streams. */
static _Thread_local uint64_t *stream;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t cmn_random_step(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(*state);
}

uint64_t cmn_random_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = seed;

    h = mix(h + UINT64_C(0x9e3779b97f4a7c15)) ^ a;
    h = mix(h + UINT64_C(0x9e3779b97f4a7c15)) ^ b;
    h = mix(h + UINT64_C(0x9e3779b97f4a7c15)) ^ c;
    return mix(h + UINT64_C(0x9e3779b97f4a7c15));
}

void cmn_random_open(uint64_t seed, int rank, uint64_t when)
{
    seed_of_job = seed;
    common = cmn_random_hash(seed, 1, 0, 0);
    own = cmn_random_hash(seed, 2, (uint64_t)rank, when);
    stream = &common;
}

uint64_t *cmn_random_stream(int is_own)
{
    return is_own ? &own : &common;
}

void cmn_random_common(void)
{
    stream = &common;
}

void cmn_random_own(void)
{
    stream = &own;
}

void cmn_random_named(enum cmn_random_purpose purpose, uint64_t number)
{
    named = cmn_random_hash(seed_of_job, (uint64_t)purpose, number, 0);
    stream = &named;
}

int cmn_random_int(void)
{
    return (int)(cmn_random_step(stream ? stream : &named) >> 33);
}

unsigned long cmn_random_draw_seed(void)
{
    uint32_t bits;

    if (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
        bits = (uint32_t)getpid() * UINT32_C(2654435761);
    }
    return bits & 0x7fffffff;
}
