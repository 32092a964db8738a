#include "watch.h"

#include <stdatomic.h>
#include <stddef.h>

#include "log.h"

static _Atomic(const char *) now;
static _Atomic double begin;

void cmn_watch(const char *what)
{
    atomic_store(&begin, cmn_clock());
    atomic_store(&now, what);
}

double cmn_watch_since(const char **what)
{
    *what = atomic_load(&now);
    return *what ? cmn_clock() - atomic_load(&begin) : 0;
}
