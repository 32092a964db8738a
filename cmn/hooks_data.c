/* The call of cmn.h by which data that each rank reads by itself are compared. */
#include "cmn.h"

#include "alike.h"
#include "job.h"

void cmn_same(const char *file)
{
    if (cmn_job.on) {
        cmn_check(cmn_alike_file(&cmn_job.topology, file));
    }
}
