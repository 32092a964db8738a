/* Darknet's kernels on the CPU, over the stand-in's memory: what its classifiers of connected,
 * convolutional, maxpool, dropout, batchnorm and softmax layers need. The rest of its GPU code
 * is its own. */
#include <math.h>
#include <stdlib.h>

#include <cblas.h>

#include "activations.h"
#include "batchnorm_layer.h"
#include "blas.h"
#include "convolutional_layer.h"
#include "cuda.h"
#include "darknet.h"
#include "dropout_layer.h"
#include "maxpool_layer.h"

#include "fake.h"

struct fake_generator {
    unsigned long long state;
};

/* The program has no call to set the scene with. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *gpus = getenv("FAKE_GPUS");

    fake.gpus = gpus ? atoi(gpus) : 0;
}

static float *at(float *device)
{
    return device ? fake_address(device) : NULL;
}

/* ---- libraries ---- */

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc)
{
    (void)handle;
    cblas_sgemm(CblasColMajor, transa ? CblasTrans : CblasNoTrans,
                transb ? CblasTrans : CblasNoTrans, m, n, k, *alpha, fake_address(a), lda,
                fake_address(b), ldb, *beta, fake_address(c), ldc);
    return CUBLAS_STATUS_SUCCESS;
}

curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type)
{
    (void)type;
    *generator = calloc(1, sizeof **generator);
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed)
{
    generator->state = seed;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        generator->state = generator->state * 6364136223846793005ULL + 1442695040888963407ULL;
        at(to)[i] = (float)(generator->state >> 40) / (float)(1 << 24);
    }
    return CURAND_STATUS_SUCCESS;
}

/* ---- blas_kernels.cu ---- */

void axpy_gpu(int N, float ALPHA, float *X, int INCX, float *Y, int INCY)
{
    axpy_cpu(N, ALPHA, at(X), INCX, at(Y), INCY);
}

void scal_gpu(int N, float ALPHA, float *X, int INCX)
{
    scal_cpu(N, ALPHA, at(X), INCX);
}

void fill_gpu(int N, float ALPHA, float *X, int INCX)
{
    fill_cpu(N, ALPHA, at(X), INCX);
}

void copy_gpu(int N, float *X, int INCX, float *Y, int INCY)
{
    copy_cpu(N, at(X), INCX, at(Y), INCY);
}

void mul_gpu(int N, float *X, int INCX, float *Y, int INCY)
{
    mul_cpu(N, at(X), INCX, at(Y), INCY);
}

void mult_add_into_gpu(int num, float *a, float *b, float *c)
{
    mult_add_into_cpu(num, at(a), at(b), at(c));
}

void weighted_sum_gpu(float *a, float *b, float *s, int num, float *c)
{
    weighted_sum_cpu(at(a), at(b), at(s), num, at(c));
}

void weighted_delta_gpu(float *a, float *b, float *s, float *da, float *db, float *ds, int num,
                        float *dc)
{
    weighted_delta_cpu(at(a), at(b), at(s), at(da), at(db), at(ds), num, at(dc));
}

void constrain_gpu(int N, float ALPHA, float *X, int INCX)
{
    for (int i = 0; i < N; i++) {
        at(X)[i * INCX] = fminf(ALPHA, fmaxf(-ALPHA, at(X)[i * INCX]));
    }
}

void softmax_gpu(float *input, int n, int batch, int batch_offset, int groups, int group_offset,
                 int stride, float temp, float *output)
{
    softmax_cpu(at(input), n, batch, batch_offset, groups, group_offset, stride, temp, at(output));
}

void softmax_x_ent_gpu(int n, float *pred, float *truth, float *delta, float *error)
{
    softmax_x_ent_cpu(n, at(pred), at(truth), at(delta), at(error));
}

void scale_bias_gpu(float *output, float *biases, int batch, int n, int size)
{
    scale_bias(at(output), at(biases), batch, n, size);
}

void add_bias_gpu(float *output, float *biases, int batch, int n, int size)
{
    add_bias(at(output), at(biases), batch, n, size);
}

void backward_bias_gpu(float *bias_updates, float *delta, int batch, int n, int size)
{
    backward_bias(at(bias_updates), at(delta), batch, n, size);
}

void backward_scale_gpu(float *x_norm, float *delta, int batch, int n, int size,
                        float *scale_updates)
{
    backward_scale_cpu(at(x_norm), at(delta), batch, n, size, at(scale_updates));
}

void fast_mean_gpu(float *x, int batch, int filters, int spatial, float *mean)
{
    mean_cpu(at(x), batch, filters, spatial, at(mean));
}

void fast_variance_gpu(float *x, float *mean, int batch, int filters, int spatial, float *variance)
{
    variance_cpu(at(x), at(mean), batch, filters, spatial, at(variance));
}

void normalize_gpu(float *x, float *mean, float *variance, int batch, int filters, int spatial)
{
    normalize_cpu(at(x), at(mean), at(variance), batch, filters, spatial);
}

void fast_mean_delta_gpu(float *delta, float *variance, int batch, int filters, int spatial,
                         float *mean_delta)
{
    mean_delta_cpu(at(delta), at(variance), batch, filters, spatial, at(mean_delta));
}

void fast_variance_delta_gpu(float *x, float *delta, float *mean, float *variance, int batch,
                             int filters, int spatial, float *variance_delta)
{
    variance_delta_cpu(at(x), at(delta), at(mean), at(variance), batch, filters, spatial,
                       at(variance_delta));
}

void normalize_delta_gpu(float *x, float *mean, float *variance, float *mean_delta,
                         float *variance_delta, int batch, int filters, int spatial, float *delta)
{
    normalize_delta_cpu(at(x), at(mean), at(variance), at(mean_delta), at(variance_delta), batch,
                        filters, spatial, at(delta));
}

/* Adam: Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, with Darknet's decay and
 * signs. */
void adam_update_gpu(float *w, float *d, float *m, float *v, float B1, float B2, float eps,
                     float decay, float rate, int n, int batch, int t)
{
    for (int i = 0; i < n; i++) {
        float g = at(d)[i] - decay * (float)batch * at(w)[i];
        at(m)[i] = B1 * at(m)[i] + (1 - B1) * g;
        at(v)[i] = B2 * at(v)[i] + (1 - B2) * g * g;
        at(w)[i] += rate * at(m)[i] / (1 - powf(B1, (float)t)) /
                    (sqrtf(at(v)[i] / (1 - powf(B2, (float)t))) + eps);
        at(d)[i] = 0;
    }
}

/* ---- activation_kernels.cu ---- */

void activate_array_gpu(float *x, int n, ACTIVATION a)
{
    activate_array(at(x), n, a);
}

void gradient_array_gpu(float *x, int n, ACTIVATION a, float *delta)
{
    gradient_array(at(x), n, a, at(delta));
}

/* ---- layers ---- */

/* A layer, or network, whose host pointers are the GPU's, for the functions of the CPU. */
static layer on_host(layer l)
{
    l.weights = at(l.weights_gpu);
    l.weight_updates = at(l.weight_updates_gpu);
    l.biases = at(l.biases_gpu);
    l.bias_updates = at(l.bias_updates_gpu);
    l.scales = at(l.scales_gpu);
    l.scale_updates = at(l.scale_updates_gpu);
    l.mean = at(l.mean_gpu);
    l.variance = at(l.variance_gpu);
    l.mean_delta = at(l.mean_delta_gpu);
    l.variance_delta = at(l.variance_delta_gpu);
    l.rolling_mean = at(l.rolling_mean_gpu);
    l.rolling_variance = at(l.rolling_variance_gpu);
    l.x = at(l.x_gpu);
    l.x_norm = at(l.x_norm_gpu);
    l.output = at(l.output_gpu);
    l.delta = at(l.delta_gpu);
    l.indexes = fake_address(l.indexes_gpu);
    return l;
}

static network net_on_host(network net)
{
    net.input = at(net.input_gpu);
    net.delta = at(net.delta_gpu);
    net.truth = at(net.truth_gpu);
    net.workspace = at(net.workspace);
    return net;
}

/* Batch normalisation stands between the products and the activation, and is Darknet's own code
 * for the GPU: the CPU's function does its part without it, with biases that are `none`. */
static layer without_norm(layer l, float *none)
{
    layer h = on_host(l);

    h.batch_normalize = 0;
    h.activation = LINEAR;
    h.biases = h.bias_updates = none;
    return h;
}

void forward_convolutional_layer_gpu(convolutional_layer l, network net)
{
    float *none;

    if (!l.batch_normalize) {
        forward_convolutional_layer(on_host(l), net_on_host(net));
        return;
    }
    none = calloc((size_t)l.n, sizeof *none);
    forward_convolutional_layer(without_norm(l, none), net_on_host(net));
    free(none);
    forward_batchnorm_layer_gpu(l, net);
    activate_array_gpu(l.output_gpu, l.outputs * l.batch, l.activation);
}

void backward_convolutional_layer_gpu(convolutional_layer l, network net)
{
    float *none;

    if (!l.batch_normalize) {
        backward_convolutional_layer(on_host(l), net_on_host(net));
        return;
    }
    gradient_array_gpu(l.output_gpu, l.outputs * l.batch, l.activation, l.delta_gpu);
    backward_batchnorm_layer_gpu(l, net);
    none = calloc((size_t)l.n, sizeof *none);
    backward_convolutional_layer(without_norm(l, none), net_on_host(net));
    free(none);
}

void update_convolutional_layer_gpu(convolutional_layer l, update_args a)
{
    float rate = a.learning_rate * l.learning_rate_scale;

    if (!a.adam) {
        update_convolutional_layer(on_host(l), a);
        return;
    }
    adam_update_gpu(l.weights_gpu, l.weight_updates_gpu, l.m_gpu, l.v_gpu, a.B1, a.B2, a.eps,
                    a.decay, rate, l.nweights, a.batch, a.t);
    adam_update_gpu(l.biases_gpu, l.bias_updates_gpu, l.bias_m_gpu, l.bias_v_gpu, a.B1, a.B2, a.eps,
                    a.decay, rate, l.n, a.batch, a.t);
}

static void exchange(layer l, void (*one)(float *device, float *host, size_t n))
{
    one(l.weights_gpu, l.weights, (size_t)l.nweights);
    one(l.biases_gpu, l.biases, (size_t)l.n);
    if (l.batch_normalize) {
        one(l.scales_gpu, l.scales, (size_t)l.n);
        one(l.rolling_mean_gpu, l.rolling_mean, (size_t)l.n);
        one(l.rolling_variance_gpu, l.rolling_variance, (size_t)l.n);
    }
}

void pull_convolutional_layer(layer l)
{
    exchange(l, cuda_pull_array);
}

void push_convolutional_layer(layer l)
{
    exchange(l, cuda_push_array);
}

void forward_maxpool_layer_gpu(maxpool_layer l, network net)
{
    forward_maxpool_layer(on_host(l), net_on_host(net));
}

void backward_maxpool_layer_gpu(maxpool_layer l, network net)
{
    backward_maxpool_layer(on_host(l), net_on_host(net));
}

static void drop(layer l, float *x)
{
    for (int i = 0; i < l.batch * l.inputs && x; i++) {
        x[i] = at(l.rand_gpu)[i] < l.probability ? 0 : x[i] * l.scale;
    }
}

void forward_dropout_layer_gpu(dropout_layer l, network net)
{
    if (net.train) {
        cuda_random(l.rand_gpu, (size_t)l.batch * (size_t)l.inputs);
        drop(l, at(net.input_gpu));
    }
}

void backward_dropout_layer_gpu(dropout_layer l, network net)
{
    drop(l, at(net.delta_gpu));
}
