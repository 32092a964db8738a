/* What NCCL and cuDNN themselves say where no GPU and no driver is: versions, and the numbers of types
 * and errors that cmn/ counts on. Prints a line for each thing that is otherwise, and returns how many
 * they are. */
#include <cudnn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void expect(int is, const char *what)
{
    if (!is) {
        printf("not so: %s\n", what);
        wrong++;
    }
}

int main(void)
{
    int version = 0;

    expect(ncclGetVersion(&version) == ncclSuccess && version >= 21400, "NCCL is 2.14 or newer");
    expect(ncclFloat16 == 6 && ncclFloat32 == 7, "NCCL's numbers of types");
    expect(strlen(ncclGetErrorString(ncclRemoteError)) > 0 &&
               strcmp(ncclGetErrorString(ncclRemoteError), ncclGetErrorString(ncclSuccess)),
           "NCCL's words for a lost rank");
    expect(cudnnGetVersion() >= 8100, "cuDNN is 8.1 or newer");
    expect(cudnnGetVersion() / 1000 == CUDNN_VERSION / 1000 ||
               cudnnGetVersion() / 10000 == CUDNN_VERSION / 10000,
           "cuDNN is that of its header");
    printf("NCCL %d, cuDNN %zu\n", version, cudnnGetVersion());
    return wrong;
}
