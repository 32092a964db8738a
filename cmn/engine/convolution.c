/* Convolutions on the CPU by oneDNN (-DONEDNN), as cuDNN computes them on the GPU. oneDNN computes in
 * layouts of its own, so operands in Darknet's layout are reordered before and the result after a
 * convolution: images by engine/channels.c where it knows the layout, all else by oneDNN. Images in
 * NHWC need no reorder.
 *
 * oneDNN 2 and 3 create descriptors in different ways; only the first section depends on the
 * version. */
#include "engine/convolution.h"

#ifdef ONEDNN
#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif
#include <uthash.h>

#include "base/fatal.h"
#include "base/float16.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmn.h"
#include "engine/channels.h"

/* Sets the number of threads of oneDNN and of OpenMP's loops. It is declared here because only gcc
 * finds omp.h. */
void omp_set_num_threads(int threads);

/* ---- descriptors ---- */

enum { INPUT, WEIGHTS, OUTPUT, TENSORS }; /* the values of enum cmn_convolution_result */

/* Each is a pair, for rows and for columns, as oneDNN expects them. */
struct window {
    dnnl_dims_t stride, dilation, pad;
};

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t layout_ref;
typedef dnnl_memory_desc_t layout;

static layout_ref ref(const layout *l)
{
    return *l;
}

static dnnl_status_t layout_open(layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(l, n, dims, type, tag);
}

static void layout_close(layout *l)
{
    dnnl_memory_desc_destroy(*l);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *d, int result, const layout any[TENSORS],
                              const struct window *w, dnnl_engine_t engine,
                              dnnl_primitive_desc_t forward)
{
    switch (result) {
    case OUTPUT:
        return dnnl_convolution_forward_primitive_desc_create(
            d, engine, dnnl_forward_training, dnnl_convolution_direct, any[INPUT], any[WEIGHTS],
            NULL, any[OUTPUT], w->stride, w->dilation, w->pad, w->pad, NULL);
    case INPUT:
        return dnnl_convolution_backward_data_primitive_desc_create(
            d, engine, dnnl_convolution_direct, any[INPUT], any[WEIGHTS], any[OUTPUT], w->stride,
            w->dilation, w->pad, w->pad, forward, NULL);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            d, engine, dnnl_convolution_direct, any[INPUT], any[WEIGHTS], NULL, any[OUTPUT],
            w->stride, w->dilation, w->pad, w->pad, forward, NULL);
    }
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *d, const layout *a, const layout *b,
                                      const layout *c, dnnl_primitive_attr_t attributes,
                                      dnnl_engine_t engine)
{
    return dnnl_matmul_primitive_desc_create(d, engine, *a, *b, NULL, *c, attributes);
}

static dnnl_status_t add_to_result(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1, 0, dnnl_data_type_undef);
}

#else

typedef const dnnl_memory_desc_t *layout_ref;
typedef dnnl_memory_desc_t layout;

static layout_ref ref(const layout *l)
{
    return l;
}

static dnnl_status_t layout_open(layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(l, n, dims, type, tag);
}

static void layout_close(layout *l)
{
    (void)l;
}

static dnnl_status_t describe(dnnl_primitive_desc_t *d, int result, const layout any[TENSORS],
                              const struct window *w, dnnl_engine_t engine,
                              dnnl_primitive_desc_t forward)
{
    const layout *in = &any[INPUT], *weights = &any[WEIGHTS], *out = &any[OUTPUT];
    dnnl_convolution_desc_t c;
    dnnl_status_t failed;

    switch (result) {
    case OUTPUT:
        failed = dnnl_dilated_convolution_forward_desc_init(
            &c, dnnl_forward_training, dnnl_convolution_direct, in, weights, NULL, out, w->stride,
            w->dilation, w->pad, w->pad);
        break;
    case INPUT:
        failed = dnnl_dilated_convolution_backward_data_desc_init(
            &c, dnnl_convolution_direct, in, weights, out, w->stride, w->dilation, w->pad, w->pad);
        break;
    default:
        failed = dnnl_dilated_convolution_backward_weights_desc_init(
            &c, dnnl_convolution_direct, in, weights, NULL, out, w->stride, w->dilation, w->pad,
            w->pad);
    }
    return failed ? failed : dnnl_primitive_desc_create(d, &c, NULL, engine, forward);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *d, const layout *a, const layout *b,
                                      const layout *c, dnnl_primitive_attr_t attributes,
                                      dnnl_engine_t engine)
{
    dnnl_matmul_desc_t m;
    dnnl_status_t failed = dnnl_matmul_desc_init(&m, a, b, NULL, c);

    return failed ? failed : dnnl_primitive_desc_create(d, &m, attributes, engine, NULL);
}

static dnnl_status_t add_to_result(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1);
}

#endif

/* ---- one convolution of one shape ---- */

/* An operand in the caller's layout (plain) and in oneDNN's (blocked). If both layouts are the same,
 * only `plain` is used and `reorder` is NULL. */
struct operand {
    dnnl_memory_t plain, blocked;
    dnnl_primitive_t reorder;
    size_t bytes; /* size of the blocked operand */
    /* How an image is reordered without oneDNN: to bf16, or added to what is there. */
    struct cmn_channels channels;
    int to_bf16, adds;
};

struct key {
    struct cmn_convolution shape;
    int result;
    int in_bf16;       /* its factors are rounded to bf16 */
    int nhwc[TENSORS]; /* the operand is an image in NHWC, of bf16 if in_bf16 is set */
    int is_connected;  /* all images are pixels x channels */
};

struct convolution {
    struct key key;
    /* NULL: oneDNN has only its reference implementation, which is slow, or loses weights. */
    dnnl_primitive_t run;
    const int *argument; /* oneDNN's names of the operands */
    struct operand operand[TENSORS];
    UT_hash_handle hh;
};

static struct convolution *convolutions;
static int used, in_bf16;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
/* Memory for blocked operands. `scratch` is shared: it serves the convolution that runs. */
struct room {
    float *at;
    size_t bytes;
};
static struct room scratch[TENSORS];
/* A layer's weights in the blocked layouts for the output and for the gradient of the input. */
struct held {
    const float *weights; /* the weights in Darknet's layout */
    struct room room[TENSORS];
    /* The operand whose layout `room` has; NULL: the weights must be reordered first. */
    const struct operand *operand[TENSORS];
    UT_hash_handle hh;
};
static struct held *held;
static int holds;
/* The gradient of an output that the last call has reordered to compute the gradient of the
 * weights. The gradient of the input needs no second reorder if it uses the same layout. */
static struct {
    const struct operand *operand; /* NULL: none */
    const void *plain;
} reordered;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void must(dnnl_status_t failed, const char *what)
{
    if (failed) {
        cmn_fatal("oneDNN cannot %s: its status is %d%s", what, (int)failed,
                  failed == dnnl_out_of_memory ? " (no memory)" : "");
    }
}

static void run_reorder(dnnl_primitive_t reorder, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    must(dnnl_primitive_execute(reorder, stream, 2, arguments), "reorder a tensor");
}

/* Finds out whether engine/channels.c knows the blocked layout of an operand that is an image. */
static void find_channels(struct operand *o, const struct cmn_convolution *s, int i, int bf16)
{
    static const dnnl_format_tag_t tag[] = {
        [CMN_CHANNELS_LAST] = dnnl_nhwc, [CMN_CHANNELS_BY_SIXTEEN] = dnnl_nChw16c};
    struct cmn_channels c = {CMN_CHANNELS_UNKNOWN, s->batch, s->channels,
                             (size_t)s->height * (size_t)s->width};
    dnnl_dims_t dims = {s->batch, s->channels, s->height, s->width};
    layout_ref is;

    if (i == OUTPUT) {
        c = (struct cmn_channels){CMN_CHANNELS_UNKNOWN, s->batch, s->filters,
                                  (size_t)s->out_height * (size_t)s->out_width};
        dims[1] = s->filters;
        dims[2] = s->out_height;
        dims[3] = s->out_width;
    }
    must(dnnl_memory_get_memory_desc(o->blocked, &is), "compare layouts");
    for (int k = CMN_CHANNELS_LAST;
         k <= CMN_CHANNELS_BY_SIXTEEN && c.pixels > 1 && cmn_channels_fast(bf16); k++) {
        layout known;
        must(layout_open(&known, 4, dims, bf16 ? dnnl_bf16 : dnnl_f32, tag[k]),
             "describe a tensor");
        if (dnnl_memory_desc_equal(ref(&known), is)) {
            c.layout = (enum cmn_channels_layout)k;
        }
        layout_close(&known);
    }
    o->channels = c;
    o->to_bf16 = bf16;
}

/* Returns attributes with which oneDNN adds to a result. */
static dnnl_primitive_attr_t open_adding(void)
{
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t after;

    must(dnnl_post_ops_create(&after), "add to a tensor");
    must(add_to_result(after), "add to a tensor");
    must(dnnl_primitive_attr_create(&attributes), "add to a tensor");
    must(dnnl_primitive_attr_set_post_ops(attributes, after), "add to a tensor");
    dnnl_post_ops_destroy(after);
    return attributes;
}

static void open_operand(struct operand *o, const layout *plain, layout_ref blocked, int is_result,
                         int adds)
{
    dnnl_primitive_attr_t attributes = adds ? open_adding() : NULL;
    dnnl_primitive_desc_t d;

    o->adds = adds;
    must(dnnl_memory_create(&o->plain, ref(plain), engine, DNNL_MEMORY_NONE), "describe a tensor");
    if (dnnl_memory_desc_equal(ref(plain), blocked) && !adds) {
        return;
    }
    o->bytes = dnnl_memory_desc_get_size(blocked);
    must(dnnl_memory_create(&o->blocked, blocked, engine, DNNL_MEMORY_NONE), "describe a tensor");
    must(dnnl_reorder_primitive_desc_create(&d, is_result ? blocked : ref(plain), engine,
                                            is_result ? ref(plain) : blocked, engine, attributes),
         "reorder a tensor");
    must(dnnl_primitive_create(&o->reorder, d), "reorder a tensor");
    dnnl_primitive_desc_destroy(d);
    dnnl_primitive_attr_destroy(attributes);
}

/* Returns whether a reorder of weights keeps each number exactly once; some versions of oneDNN do
 * not, see limit(). A blocked operand has more room than numbers: the rest of an input is 0, and
 * the rest of a result is not copied. */
static int keeps_all(struct operand *o, const layout *plain, int is_result, int rounds)
{
    /* A float holds integers up to the first one exactly, and a bf16 up to the other. */
    const size_t NUMBERS = rounds ? 1 << 8 : 1 << 24;
    size_t n = dnnl_memory_desc_get_size(ref(plain)) / sizeof(float), kept = 0;
    size_t room = o->bytes / (rounds ? sizeof(uint16_t) : sizeof(float));
    size_t from = is_result ? room : n, to = is_result ? n : room;
    float *in = cmn_alloc_floats(from), *out = cmn_alloc_floats(to);
    unsigned *times = cmn_calloc(from < NUMBERS ? from : NUMBERS, sizeof *times);

    for (size_t i = 0; i < from; i++) {
        in[i] = (float)(i % NUMBERS + 1);
        times[i % NUMBERS]++;
    }
    must(dnnl_memory_set_data_handle(o->plain, is_result ? out : in), "use a tensor");
    must(dnnl_memory_set_data_handle(o->blocked, is_result ? in : out), "use a tensor");
    run_reorder(o->reorder, is_result ? o->blocked : o->plain, is_result ? o->plain : o->blocked);
    must(dnnl_stream_wait(stream), "wait for a tensor");
    if (rounds) {
        float *decoded = cmn_alloc_floats(to);
        cmn_float16_decode(CMN_BF16, decoded, (const uint16_t *)out, to);
        free(out);
        out = decoded;
    }
    for (size_t i = 0; i < to; i++) {
        float is = out[i];
        size_t number = is >= 1 && is <= (float)NUMBERS ? (size_t)is - 1 : NUMBERS;
        kept += number < NUMBERS && number < from && times[number] && times[number]--;
    }
    free(in);
    free(out);
    free(times);
    return kept == n;
}

static void tell_wrong_reorder(const struct cmn_convolution *s)
{
    static int told;

    if (!told++) {
        cmn_warn("oneDNN %d.%d.%d loses weights on this processor, as of a convolution "
                 "with %d filters of size %d: such ones are computed by Darknet itself",
                 dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch, s->filters,
                 s->size);
    }
}

/* oneDNN has fast kernels where both images have the same layout. */
static dnnl_format_tag_t image_tag(const struct key *k, int any, int i)
{
    return k->nhwc[i] || (any && (k->nhwc[INPUT] || k->nhwc[OUTPUT])) ? dnnl_nhwc
           : any                                                      ? dnnl_format_tag_any
                                                                      : dnnl_nchw;
}

/* Describes the three tensors in the caller's layouts or, if `any` is set, in layouts that oneDNN
 * will choose, of these types. */
static void open_layouts(const struct key *key, int any, const dnnl_data_type_t type[TENSORS],
                         layout l[TENSORS])
{
    const struct cmn_convolution *s = &key->shape;
    const dnnl_dims_t input = {s->batch, s->channels, s->height, s->width},
                      output = {s->batch, s->filters, s->out_height, s->out_width},
                      weights = {s->filters, s->channels, s->size, s->size},
                      grouped = {s->groups, s->filters / s->groups, s->channels / s->groups,
                                 s->size, s->size};

    must(layout_open(&l[INPUT], 4, input, type[INPUT], image_tag(key, any, INPUT)),
         "describe a tensor");
    must(layout_open(&l[OUTPUT], 4, output, type[OUTPUT], image_tag(key, any, OUTPUT)),
         "describe a tensor");
    if (s->groups > 1) {
        must(layout_open(&l[WEIGHTS], 5, grouped, type[WEIGHTS],
                         any ? dnnl_format_tag_any : dnnl_goihw),
             "describe a tensor");
    } else {
        must(layout_open(&l[WEIGHTS], 4, weights, type[WEIGHTS],
                         any ? dnnl_format_tag_any : dnnl_oihw),
             "describe a tensor");
    }
}

/* Returns whether oneDNN writes where it must not: 2.6.3 does where threads share the gradient of
 * the weights of such a convolution (jit_1x1 and jit_bf16_1x1; an access behind a guarded page showed
 * it, with fewer than 16 channels and any number of images). */
static int oversteps(const struct key *k)
{
    const struct cmn_convolution *s = &k->shape;

    return (k->nhwc[INPUT] || k->nhwc[OUTPUT]) && s->size == 1 && s->channels < 16 &&
           (s->stride_x > 1 || s->stride_y > 1);
}

/* The factors are rounded, and their sum is not. */
static void find_types(const struct key *key, dnnl_data_type_t given[TENSORS],
                       dnnl_data_type_t type[TENSORS])
{
    for (int i = 0; i < TENSORS; i++) {
        given[i] = key->in_bf16 && key->nhwc[i] ? dnnl_bf16 : dnnl_f32;
        type[i] = key->in_bf16 && i != key->result ? dnnl_bf16 : given[i];
    }
}

/* Compiles what was described unless oneDNN has only its reference for it; returns whether it
 * did. */
static int compile(struct convolution *c, dnnl_primitive_desc_t d, dnnl_status_t failed)
{
    const char *name = "ref";

    if (failed && failed != dnnl_unimplemented) {
        must(failed, "describe a convolution");
    }
    if (!failed) {
        must(dnnl_primitive_desc_query(d, dnnl_query_impl_info_str, 0, (void *)&name),
             "name a convolution");
    }
    if (!strncmp(name, "ref", 3) || oversteps(&c->key)) {
        return 0;
    }
    must(dnnl_primitive_create(&c->run, d), "compile a convolution");
    return 1;
}

static void open_convolution(struct convolution *c)
{
    const struct cmn_convolution *s = &c->key.shape;
    static const int argument[TENSORS][TENSORS] = {
        [INPUT] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
        [OUTPUT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    };
    const struct window w = {.stride = {s->stride_y, s->stride_x},
                             .dilation = {s->dilation - 1, s->dilation - 1},
                             .pad = {s->pad, s->pad}};
    const struct key *key = &c->key;
    dnnl_data_type_t given[TENSORS], type[TENSORS], hint[TENSORS];
    dnnl_primitive_desc_t d = NULL, forward = NULL;
    layout plain[TENSORS], any[TENSORS], first[TENSORS];
    dnnl_status_t failed;
    int well = 1;

    find_types(key, given, type);
    for (int i = 0; i < TENSORS; i++) {
        hint[i] = key->in_bf16 && i != OUTPUT ? dnnl_bf16 : given[i];
    }
    open_layouts(key, 0, given, plain);
    open_layouts(key, 1, type, any);
    open_layouts(key, 1, hint, first);
    failed = describe(&forward, OUTPUT, first, &w, engine, NULL);
    if (!failed && key->result != OUTPUT) {
        failed = describe(&d, key->result, any, &w, engine, forward);
    }
    c->argument = argument[key->result];
    if (compile(c, d ? d : forward, failed)) {
        for (int i = 0; i < TENSORS; i++) {
            struct operand *o = &c->operand[i];
            layout_ref blocked = dnnl_primitive_desc_query_md(
                d ? d : forward, dnnl_query_exec_arg_md, c->argument[i]);
            open_operand(o, &plain[i], blocked, i == key->result,
                         i == key->result && i != OUTPUT && !key->nhwc[i]);
            if (o->reorder && i != WEIGHTS) {
                find_channels(o, s, i, type[i] == dnnl_bf16);
            }
            well = well && (i != WEIGHTS || !o->reorder ||
                            keeps_all(o, &plain[i], i == key->result, type[i] == dnnl_bf16));
        }
    }
    if (!well) {
        tell_wrong_reorder(s);
        dnnl_primitive_destroy(c->run);
        c->run = NULL;
    }
    dnnl_primitive_desc_destroy(d);
    dnnl_primitive_desc_destroy(forward);
    for (int i = 0; i < TENSORS; i++) {
        layout_close(&plain[i]);
        layout_close(&any[i]);
        layout_close(&first[i]);
    }
}

/* ---- products of matrices ---- */

/* Returns whether oneDNN's kernel for this product stops the process with an illegal instruction:
 * 2.6.3 does for AMX, with some sizes of the result, where each sum has 31 addends more than a
 * multiple of 32. */
static int is_illegal(const struct key *k)
{
    const struct cmn_convolution *s = &k->shape;
    int addends = k->result == OUTPUT  ? s->channels
                  : k->result == INPUT ? s->filters
                                       : s->batch * s->height * s->width;

    return DNNL_VERSION_MAJOR < 3 && addends % 32 == 31;
}

/* Returns whether bf16 images in NHWC are convolved as a product of matrices, pixels x channels and
 * filters x channels. oneDNN multiplies them in Darknet's order about as fast as in its own, and to
 * reorder the weights takes as long as a connected layer's convolution. In 32 bits the times are
 * equal. */
static int is_product(const struct key *k)
{
    const struct cmn_convolution *s = &k->shape;

    return k->is_connected ||
           (k->in_bf16 && k->nhwc[INPUT] && k->nhwc[OUTPUT] && s->size == 1 && s->stride_y == 1 &&
            s->stride_x == 1 && s->pad == 0 && s->groups == 1 && !is_illegal(k));
}

/* Describes the matrices as the factors and the result of a product: one factor is turned. */
static void open_matrices(const struct key *key, const dnnl_data_type_t type[TENSORS],
                          layout l[TENSORS])
{
    const struct cmn_convolution *s = &key->shape;
    dnnl_dim_t pixels = (dnnl_dim_t)s->batch * s->height * s->width;
    const dnnl_dim_t side[TENSORS][2] = {[INPUT] = {pixels, s->channels},
                                         [WEIGHTS] = {s->filters, s->channels},
                                         [OUTPUT] = {pixels, s->filters}};

    for (int i = 0; i < TENSORS; i++) {
        int turned = i + key->result == WEIGHTS + OUTPUT && i != key->result;
        const dnnl_dims_t dims = {side[i][turned], side[i][!turned]};
        must(layout_open(&l[i], 2, dims, type[i], turned ? dnnl_ba : dnnl_ab), "describe a matrix");
    }
}

static void open_product(struct convolution *c)
{
    static const int argument[TENSORS][TENSORS] = {
        [INPUT] = {DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_SRC},
        [WEIGHTS] = {DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SRC},
        [OUTPUT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    };
    const struct key *key = &c->key;
    int result = key->result, first = result == OUTPUT ? INPUT : OUTPUT;
    int second = result == WEIGHTS ? INPUT : WEIGHTS;
    dnnl_primitive_attr_t attributes =
        result != OUTPUT && !key->nhwc[result] ? open_adding() : NULL;
    dnnl_data_type_t given[TENSORS], type[TENSORS];
    dnnl_primitive_desc_t d = NULL;
    layout plain[TENSORS], factor[TENSORS];
    dnnl_status_t failed;

    find_types(key, given, type);
    open_matrices(key, given, plain);
    open_matrices(key, type, factor);
    failed =
        describe_product(&d, &factor[first], &factor[second], &factor[result], attributes, engine);
    c->argument = argument[result];
    if (!is_illegal(key)) {
        compile(c, d, failed);
    }
    for (int i = 0; i < TENSORS; i++) {
        open_operand(&c->operand[i], &plain[i], ref(&factor[i]), 0, 0);
        layout_close(&plain[i]);
        layout_close(&factor[i]);
    }
    dnnl_primitive_desc_destroy(d);
    dnnl_primitive_attr_destroy(attributes);
}

/* ---- the processor ---- */

static int is_amd(void)
{
#ifdef __x86_64__
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

/* Limits oneDNN to AVX2 where it may lose weights. oneDNN 3.7.2, which is in Debian 13, sometimes
 * loses most weights of 3x3 filters when it reorders them into blocks of 16: seen on an AMD
 * processor with AVX-512, not with AVX2, and not on an Intel processor. It is not known which
 * earlier versions, and which up to 3.8, do so. keeps_all() finds what this does not prevent. The
 * environment variable ONEDNN_MAX_CPU_ISA takes precedence. */
static void limit(void)
{
    static int done;

    if (!done++ && !in_bf16 && is_amd() && dnnl_version()->major == 3 &&
        dnnl_version()->minor <= 8 && !getenv("ONEDNN_MAX_CPU_ISA")) {
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    }
}

/* Returns whether oneDNN multiplies in bf16 by instructions of this processor. */
static int knows_bf16(void)
{
#if defined(__x86_64__)
    int has = (int)dnnl_get_effective_cpu_isa();

    return (has & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#else
    return 0;
#endif
}

static struct convolution *look_up(const struct cmn_convolution *shape, int result,
                                   const struct cmn_convolution_data *data)
{
    struct key key = {.shape = *shape,
                      .result = result,
                      .in_bf16 = in_bf16,
                      .nhwc = {[INPUT] = data->input_in_nhwc, [OUTPUT] = data->output_in_nhwc},
                      .is_connected = data->is_connected};
    struct convolution *c;

    if (!engine) {
        limit();
        must(dnnl_engine_create(&engine, dnnl_cpu, 0), "start");
        must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "start");
    }
    HASH_FIND(hh, convolutions, &key, sizeof key, c);
    if (!c) {
        c = cmn_calloc(1, sizeof *c);
        c->key = key;
        if (is_product(&key)) {
            open_product(c);
        } else {
            open_convolution(c);
        }
        HASH_ADD(hh, convolutions, key, sizeof c->key, c);
    }
    return c;
}

/* ---- running ---- */

static void place(struct operand *o, struct room *r, void *data)
{
    must(dnnl_memory_set_data_handle(o->plain, data), "use a tensor");
    if (!o->reorder) {
        return;
    }
    if (r->bytes < o->bytes) {
        free(r->at);
        r->at = cmn_alloc_floats((o->bytes + sizeof(float) - 1) / sizeof(float));
        r->bytes = o->bytes;
    }
    must(dnnl_memory_set_data_handle(o->blocked, r->at), "use a tensor");
}

static int has_layout_of(const struct operand *a, const struct operand *b)
{
    layout_ref x, y;

    must(dnnl_memory_get_memory_desc(a->blocked, &x), "compare layouts");
    must(dnnl_memory_get_memory_desc(b->blocked, &y), "compare layouts");
    return dnnl_memory_desc_equal(x, y);
}

/* Returns whether the scratch memory holds this gradient of an output, reordered by the call
 * before. */
static int is_reordered(const struct operand *o, int result, const void *data)
{
    return result == INPUT && reordered.operand && reordered.plain == data &&
           has_layout_of(reordered.operand, o);
}

/* Assigns to the weights memory that keeps them. Returns whether that memory already holds them in
 * this layout. */
static int hold(struct operand *o, int result, void *weights)
{
    struct held *h;
    int there;

    HASH_FIND_PTR(held, &weights, h);
    if (!h) {
        h = cmn_calloc(1, sizeof *h);
        h->weights = weights;
        HASH_ADD_PTR(held, weights, h);
    }
    there = h->operand[result] && has_layout_of(h->operand[result], o);
    place(o, &h->room[result], weights);
    h->operand[result] = o;
    return there;
}

void cmn_convolution_hold_weights(int now)
{
    pthread_mutex_lock(&one_at_a_time);
    holds = now;
    for (struct held *h = held; h; h = h->hh.next) {
        memset(h->operand, 0, sizeof h->operand);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

/* Makes operand i available to oneDNN, reordered to oneDNN's layout unless it is the result. */
static void bring(struct operand *o, int i, int result, void *data)
{
    int there = i == result;

    if (holds && o->reorder && i == WEIGHTS && !there) {
        there = hold(o, result, data);
    } else {
        place(o, &scratch[i], data);
        there |= o->reorder && i == OUTPUT && is_reordered(o, result, data);
    }
    if (o->reorder && !there && o->channels.layout) {
        cmn_channels_pack(&o->channels, o->to_bf16, scratch[i].at, data);
    } else if (o->reorder && !there) {
        run_reorder(o->reorder, o->plain, o->blocked);
    }
}

int cmn_convolution_multiply(const struct cmn_convolution *shape, int result,
                             const struct cmn_convolution_data *tensors)
{
    void *data[TENSORS] = {tensors->input, tensors->weights, tensors->output};
    dnnl_exec_arg_t arguments[TENSORS];
    struct convolution *c;
    int there;

    if (!used) {
        return 0;
    }
    pthread_mutex_lock(&one_at_a_time);
    c = look_up(shape, result, tensors);
    there = c->run != NULL;
    for (int i = 0; there && i < TENSORS; i++) {
        struct operand *o = &c->operand[i];
        bring(o, i, result, data[i]);
        arguments[i] = (dnnl_exec_arg_t){c->argument[i], o->reorder ? o->blocked : o->plain};
    }
    reordered.operand = NULL;
    if (there) {
        struct operand *o = &c->operand[result];
        if (result == CMN_WEIGHTS && c->operand[OUTPUT].reorder) {
            reordered.operand = &c->operand[OUTPUT];
            reordered.plain = tensors->output;
        }
        must(dnnl_primitive_execute(c->run, stream, TENSORS, arguments), "compute a convolution");
        if (o->reorder && o->channels.layout) {
            must(dnnl_stream_wait(stream), "wait for a convolution");
            cmn_channels_unpack(&o->channels, o->adds, data[result], scratch[result].at);
        } else if (o->reorder) {
            run_reorder(o->reorder, o->blocked, o->plain);
        }
        must(dnnl_stream_wait(stream), "wait for a convolution");
    }
    pthread_mutex_unlock(&one_at_a_time);
    return there;
}

int cmn_convolution_knows(const struct cmn_convolution *shape,
                          const struct cmn_convolution_data *images)
{
    int there = used;

    pthread_mutex_lock(&one_at_a_time);
    for (int result = 0; result < TENSORS && there; result++) {
        there = look_up(shape, result, images)->run != NULL;
    }
    pthread_mutex_unlock(&one_at_a_time);
    return there;
}

void cmn_convolution_use(int on)
{
    used = on;
}

int cmn_convolution_use_bf16(int on)
{
    in_bf16 = on;
    cmn_convolution_loops_alone(0);
    return knows_bf16();
}

void cmn_convolution_loops_alone(int alone)
{
    omp_set_num_threads(alone ? 1 : openblas_get_num_threads());
}

const char *cmn_convolution_kernels(void)
{
    static char line[96];
    const dnnl_version_t *v = dnnl_version();

    limit();
    snprintf(line, sizeof line, "oneDNN %d.%d.%d (%s), instructions of level %x\n", v->major,
             v->minor, v->patch, v->hash, (unsigned)dnnl_get_effective_cpu_isa());
    return line;
}

#else

int cmn_convolution_multiply(const struct cmn_convolution *shape, int result,
                             const struct cmn_convolution_data *tensors)
{
    (void)shape;
    (void)result;
    (void)tensors;
    return 0;
}

int cmn_convolution_knows(const struct cmn_convolution *shape,
                          const struct cmn_convolution_data *images)
{
    (void)shape;
    (void)images;
    return 0;
}

void cmn_convolution_hold_weights(int now)
{
    (void)now;
}

void cmn_convolution_use(int on)
{
    (void)on;
}

int cmn_convolution_use_bf16(int on)
{
    (void)on;
    return 0;
}

void cmn_convolution_loops_alone(int alone)
{
    (void)alone;
}

const char *cmn_convolution_kernels(void)
{
    return "";
}

#endif
