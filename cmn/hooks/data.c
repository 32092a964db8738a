/* The call of cmn.h by which data that each rank reads by itself are compared. */
#include "cmn.h"

#include "mpi/consistency.h"
#include "hooks/job.h"

void cmn_require_same_file(const char *file)
{
    if (cmn_job.on) {
        cmn_compare_file(&cmn_job.topology, file);
    }
}
