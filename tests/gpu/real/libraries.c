/* What NCCL and cuDNN themselves say where no GPU and no driver is: versions, the numbers of types and
 * errors that cmn/ counts on, and the descriptors of a convolution in bf16 with channels last. Prints
 * a line for each thing that is otherwise, and returns how many they are. */
#include <cudnn.h>
#include <cudnn_backend.h>
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

static void set(cudnnBackendDescriptor_t it, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    cudnnStatus_t status = cudnnBackendSetAttribute(it, name, type, n, value);

    expect(status == CUDNN_STATUS_SUCCESS, cudnnGetErrorString(status));
}

/* As engine/gpu_convolution.c makes them. */
static void check_descriptors(void)
{
    const int64_t size[] = {2, 8, 5, 5}, step[] = {200, 1, 40, 8}, aligned = 16, name = 1;
    const int64_t pad[] = {1, 1}, one[] = {1, 1}, dimensions = 2;
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16, sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t tensor, how;

    expect(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor), "a tensor");
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, step);
    set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    expect(!cudnnBackendFinalize(tensor), "a tensor in bf16 with channels last");
    expect(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &how), "a movement");
    set(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    set(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, one);
    set(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, one);
    expect(!cudnnBackendFinalize(how), "a movement with sums in 32 bits");
    expect(cudnnBackendFinalize(how) != CUDNN_STATUS_SUCCESS, "nothing is finished twice");
    cudnnBackendDestroyDescriptor(tensor);
    cudnnBackendDestroyDescriptor(how);
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
    check_descriptors();
    printf("NCCL %d, cuDNN %zu\n", version, cudnnGetVersion());
    return wrong;
}
