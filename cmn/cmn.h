/* darknet-cmn: data-parallel training for Darknet.
 *
 * mpiexec starts several processes (ranks). Each holds the whole network and computes the gradient
 * of its part of the batch; between backward and update the gradients are summed over all ranks,
 * and every rank applies the same update:
 *
 *     mpiexec -n 4 darknet classifier train my.data my.cfg -cmn
 *
 * Darknet's patched source includes only this header, and so do your own programs
 * (examples/world/):
 *
 *     #include <mpi.h>    // first, if you want the communicators of MPI
 *     #include <cmn.h>
 *
 *     int main(void)
 *     {
 *         cmn_start();
 *         …
 *         cmn_mean(x, n);
 *         return 0;
 *     }
 *
 * "Collective" calls must be reached by all ranks in the same order; all others are local.
 * Collective calls block until the other ranks have come as far; local ones block only where they
 * say so. A call that fails does not return: it ends the whole job with one line and a status that
 * is not 0. Calls belong to the main thread unless they are said to be thread-safe. Memory that a
 * call gets or returns is the caller's unless it says otherwise. */
#ifndef CMN_H
#define CMN_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== For programs of your own ====
 *
 * Any number of processes, started by mpiexec; one works without it. The job ends by itself when
 * main returns or exit is called with 0 on all ranks. A rank that ends with another status, or that
 * calls cmn_fatal, ends all of them. Before cmn_start each call below is that of a job of one
 * process. */

/* Collective. Starts MPI, unless the program has done so; then the program ends it, too. Divides
 * OpenBLAS's threads among the ranks of a machine, unless the environment sets them. Takes nothing
 * from the command line. A second call does nothing. After a program's own MPI_Finalize each call
 * below is that of one process again. */
void cmn_start(void);

/* A node is a set of ranks that share memory. The strings are the library's. */
struct cmn_world {
    int rank, size;             /* of all */
    int intra_rank, intra_size; /* within the node */
    int inter_rank, inter_size; /* number of the node, and how many there are */
    const char *host;
};

/* Local. */
struct cmn_world cmn_get_world(void);

/* Local. With -cmn, whether this process has no window: other ranks than 0, and where there is no
 * display. */
int cmn_hides_windows(void);

/* Local. rank and size of that struct. */
int cmn_rank(void);
int cmn_size(void);

/* Collective. Rank 0's bytes at `data` go to all ranks; `bytes` is the same on all of them. */
void cmn_broadcast(void *data, size_t bytes);

/* Collective. Each of the n floats at `data` becomes its mean over all ranks; n is the same on all
 * of them, and may be 0. The same bits on all ranks. */
void cmn_mean(float *data, size_t n);

/* Collective. Returns when all ranks have called it. */
void cmn_barrier(void);

/* Local, thread-safe. Does not return: says the message in one line with rank and host, once for
 * the job, and ends all ranks with status 1. Without -cmn, or before cmn_start, it ends this
 * process, with only the message. */
void cmn_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ==== For Darknet's patched source ====
 *
 * Without -cmn on the command line each call returns at once, and says what Darknet would have done
 * itself. */

struct network;
struct layer;
struct list;

/* ---- the job ---- */

/* Collective with -cmn. main() calls it first. Takes -cmn and every -cmn_key VALUE out of the
 * arguments, starts MPI, and prepares this process's output. Runs `darknet cmn …` and ends
 * there. */
void cmn_init(int *argc, char **argv);

/* Local, without -cmn, too. Prints what -cmn adds to that command; both words, or the second one, may
 * be "". main() calls it behind its help of a command, and before its list of all commands. */
void cmn_print_help(const char *driver, const char *verb);

/* Local, thread-safe. Darknet's own ways to end the process call it first: as cmn_fatal with -cmn;
 * without, it returns. */
void cmn_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Collective over the ranks of a node, blocking. main() calls it: the number of this process's GPU,
 * unless -i names another one; 0 without -cmn. */
int cmn_rank_device(void);

/* Local. cuda_random() calls it after the cfg is read: the seed of the GPU's own random numbers.
 * With -cmn it follows from cmn_seed and differs by rank; without, it is `seed`. */
unsigned long cmn_rank_seed(unsigned long seed);

/* Local, thread-safe. Darknet calls it for rand(): the next of 31 random bits, from the stream of
 * what the thread is doing. */
int cmn_rand(void);

/* ---- layers ---- */

/* A convolution of `batch` images; heights and widths in pixels. */
struct cmn_convolution {
    int batch, groups;
    int channels, height, width;        /* of the input */
    int filters, out_height, out_width; /* of the output */
    int size, stride_y, stride_x, dilation, pad;
};

enum cmn_convolution_result { CMN_INPUT, CMN_WEIGHTS, CMN_OUTPUT };

/* Local, thread-safe. Convolutional layers call it for one of the three products: the output
 * (overwritten), or the gradient of the input or the weights, which is added to what is there;
 * `output` is then its gradient. Tensors are Darknet's: image, channel, row, column. From CMN_WEIGHTS
 * to a CMN_INPUT right after it, the same `output` must not change: it is reordered once for both.
 * Returns 0 where the caller has to compute: without -cmn, in an evaluation, in a build without
 * oneDNN or with CMN_DEBUG_ONEDNN=off, and where oneDNN has only its slow reference for that shape. */
int cmn_convolve(const struct layer *l, enum cmn_convolution_result result, float *input,
                 float *output);

/* Local, not blocking, except where an output needs more memory of the GPU. The same for a layer on a
 * GPU, whose tensors are there: with cmn_mixed=bf16 the factors are rounded to bf16, and so is the
 * product before it is written or added. Returns 0 without that key, and where cuDNN has no way to
 * compute it in bf16. */
int cmn_convolve_gpu(const struct layer *l, enum cmn_convolution_result result, float *input,
                     float *output);

/* Local. forward_network() calls it for layer i: whether backward overwrites the gradient of its
 * output, so that Darknet need not set it to zero. 0 without -cmn. */
int cmn_overwrites_delta(struct network *net, int i);

/* ---- cfg, data file and lists ---- */

/* Collective. The parser calls it for [net]: sets the keys of cmn that the cfg has. Returns the
 * images of a micro-batch on this rank, and sets its number of micro-batches; the cfg says `batch`
 * (already divided by subdivisions) and *subdivisions. */
int cmn_rank_batch(struct network *net, int batch, int *subdivisions);

/* Local. load_network() calls it before it reads the weights file. Returns whether this rank does:
 * only rank 0 does. */
int cmn_reads_weights(void);

/* Local. load_weights() calls it when it has read the head of a file: ends the job where the other
 * Darknet (pjreddie's or AlexeyAB's) wrote it, and orders the weights of one of this network's
 * layers in another way. */
void cmn_check_weights(struct network *net, const char *file, int revision);

/* Collective. load_network() calls it last: compares the network over the ranks, gives all of them
 * rank 0's weights, and moves its gradients to the flat buffer. */
void cmn_after_load_network(struct network *net, const char *cfg);

/* Collective. free_network() calls it first: ends the network's training, and takes the flat buffer
 * away again. */
void cmn_before_free_network(struct network *net);

/* Local, without -cmn, too. load_weights() calls it where the network's last layer is read: whether
 * the rest of the file is that of a checkpoint, so that there is nothing to warn of. */
int cmn_checkpoint_follows(FILE *weights);

/* Collective. read_data_cfg() calls it last: checks the backup folder, reads the validation list,
 * and resumes the training when the network is there. */
void cmn_after_data_cfg(struct list *options);

/* Collective. Darknet calls it for lists and names: as fopen(name, "r"), but rank 0 reads the file
 * for all, and a list of images comes without blank lines. */
FILE *cmn_fopen(const char *name);

/* Collective. The same for a cfg and for a .data file, which are checked: a fault ends the job. What
 * is checked and compared is what is parsed: Darknet gets a clean copy, in which each line is
 * KEY=VALUE or a section. */
FILE *cmn_open_cfg(const char *name);
FILE *cmn_open_data(const char *name);

/* Local. Whether Darknet reads such a copy, so that it must not take the blanks out of names. */
int cmn_line_is_clean(void);

/* Collective. A trainer calls it for a file that each rank reads by itself: it is the same on all
 * of them, or the job ends. */
void cmn_require_same_file(const char *file);

/* Collective. A trainer calls it when its samples lie in memory: so many of them are an epoch of
 * the network that was loaded last. Returns whether the trainer must train whole steps between two
 * looks at what it has seen, by which it decides to save: ranks save together, and in the midst of
 * a step each of them has seen something else. */
int cmn_samples_in_memory(size_t samples);

/* ---- images and samples ---- */

/* Local. load_threads() calls it once for each batch of *n images out of a list of `images`: the
 * number of the batch's first sample. cmn_balance changes *n. One thread at a time. */
size_t cmn_next_batch(int *n, int images);

/* Local. A trainer with random=1 calls it where it resizes: the batch drawn last was thrown away
 * unused, and the next one is the same. */
void cmn_rewind_batch(void);

/* Local. The next of samples that lie in memory, 0 to rows - 1; rand() % rows without -cmn. */
int cmn_next_sample(int rows);

/* Thread-safe. A loader thread begins to load the samples from this number on. */
void cmn_loader_load(size_t first);

/* Thread-safe. A loader thread loads the sample with this number by itself: its random numbers are
 * those of that sample from here on. 0, and nothing happens, without -cmn. */
int cmn_begin_sample(size_t number);

/* Thread-safe. Which of the `images` in `paths` the calling thread loads next: the sampler's as
 * the first one of its sample, a random one as each other that is mixed into it; rand() % images
 * without -cmn. */
int cmn_sample_image(char **paths, int images);

/* Thread-safe. The paths of the calling thread's next n samples; NULL without -cmn. The caller
 * frees the array, not the names. */
char **cmn_loader_paths(char **paths, int n);

/* Local, thread-safe; without -cmn, too. What load_image_stb() loads: the pixels of an image file,
 * or of its copy in memory; the caller frees them. Moves the thread's random numbers on to its next
 * sample. NULL: *reason says why until the thread's next call; or is NULL, and AlexeyAB's Darknet
 * without -cmn reads the file itself. */
unsigned char *cmn_load_image(const char *file, int channels, int *w, int *h, int *c,
                              const char **reason);

/* Local, thread-safe. Who decodes files otherwise calls it before: ends the job if an image is cut. */
void cmn_check_image(const char *file);

/* Thread-safe. A copy of the decoded image (the caller frees), or NULL when it is not in memory.
 * Moves the thread's random numbers on to its next sample. */
unsigned char *cmn_cached_image(const char *file, int channels, int *w, int *h, int *c);

/* Local, thread-safe. Under which name this host has an image, or its labels: `name` itself, or with
 * cmn_data=scatter that of its copy, which is valid until the thread's next call. Loaders open that. */
const char *cmn_data_path(const char *name);

/* Local, thread-safe; without -cmn, too. Reads the label file of an image: *n boxes of 5 numbers
 * each, the class, centre, width and height; the caller frees them. Ends the job if a line is no
 * label. Boxes that Darknet leaves out, or cuts, without a word are told once, by rank 0. NULL:
 * AlexeyAB's Darknet without -cmn reads it itself. */
float *cmn_read_labels(const char *file, int *n);

/* Thread-safe. Who decodes an image without these two says which file it reads, and then NULL. */
void cmn_reads_image(const char *file);

/* Thread-safe. Keeps a copy of an image that has been decoded while memory allows. */
void cmn_cache_image(const char *file, int channels, int w, int h, int c,
                     const unsigned char *pixels);

/* ---- steps ---- */

/* Local. Images of a step of all ranks; batch * subdivisions without -cmn. */
int cmn_step_images(struct network *net);

/* Local; the first one of a training is collective. train_network_datum() calls it before forward.
 * Returns by how much net->seen is to grow: net->batch without -cmn. */
int cmn_before_micro_batch(struct network *net);

/* Local. train_network_datum() calls it behind that: whether this rank is to compute the micro-batch.
 * With cmn_exact and more ranks than micro-batches some have nothing to compute. 1 without -cmn. */
int cmn_has_micro_batch(struct network *net);

/* Local. train_network_datum() calls it after backward. `last`: Darknet takes the micro-batch for
 * the last of its step; returns whether it is. */
int cmn_after_micro_batch(struct network *net, int last);

/* Local, not blocking once there is memory for it. Where a forward pass on a GPU begins: whether
 * input and labels of a training's micro-batch, n floats each, come there beside what still
 * computes. Then the network's input and labels on the GPU are others, and Darknet does not copy
 * them. 0 without -cmn. */
int cmn_sends_batch(struct network *net, const float *input, size_t inputs, const float *truth,
                    size_t truths);

/* Local, thread-safe. Blocks until an earlier copy from the same place has ended. load_threads()
 * calls it last, with the batch that it has: images of `inputs` floats, and their labels. On GPUs
 * the first micro-batch of them begins to travel. Returns a number for it, 0 where it does not. */
size_t cmn_batch_loaded(int images, float **input, int inputs, float **truth, int truths);

/* Local. train_network() calls it before a micro-batch: the number of the batch whose first
 * micro-batch it is; else 0. */
void cmn_takes_batch(struct network *net, size_t number);

/* Local, blocking. A loss that the host computes calls it: work(self, first, end, sums) has to do with
 * the images [first, end), and writes n sums (at most 8). With -cmn on a GPU, where the host's cores
 * have nothing else to do, the images are divided among threads; otherwise there is one call for
 * all. `sums` gets the sums over all calls, in the order of the images. */
void cmn_share_images(int images, void (*work)(void *self, int first, int end, float *sums),
                      void *self, float *sums, int n);

/* Local, blocking where it allocates. A loss that the host computes for a GPU calls it before its
 * copies: it returns n floats of page-locked memory, for which copies are several times as fast. The
 * memory is the module's, and valid until the next call. NULL without -cmn on a GPU. */
float *cmn_locked_memory(struct network *net, size_t n);

/* Local, not blocking. Where a forward pass on a GPU copies something to the host: whether n floats
 * of the GPU's come to `host`, and their sum to *sum (it may be NULL), without a wait, before the
 * micro-batch ends. A detector's outputs (NULL) stay on the GPU: nobody reads them in a training. 0
 * without -cmn, and where Darknet has to copy them. */
int cmn_fetches_later(struct network *net, const float *device, float *host, size_t n, float *sum);

/* Local. forward_network() calls it after layer i: makes progress in exchanges that are under
 * way. */
void cmn_after_forward(struct network *net, int i);

/* Collective in order, not blocking. backward_network() calls it after layer i. In the last
 * micro-batch of a step the gradients of layer i and above are final, and may begin to travel. */
void cmn_after_backward(struct network *net, int i);

/* Local. gemm() calls it now and then: makes progress in exchanges that are under way. Cheap. */
void cmn_progress(void);

/* Local. gemm() calls it behind that. With cmn_exact it computes the product, with bits that do not
 * depend on the number of threads, and returns 1; else 0. */
int cmn_multiply(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);

/* Local. Batch normalisation calls it: whether it is to use the statistics of all ranks now
 * (cmn_sync_bn, in a micro-batch of a training), and so must call the next two; 0 without -cmn. */
int cmn_syncs_batch_norm(struct network *net);

/* Collective where cmn_syncs_batch_norm() says so, else nothing happens. A layer has found mean and
 * variance of its n filters, each over `count` values: they become those of all ranks' values. On
 * the GPU when the network trains there. */
void cmn_sync_statistics(struct network *net, float *mean, float *variance, int n, int count);

/* The same for the sums that its backward then divides by `count`. */
void cmn_sync_statistic_deltas(struct network *net, float *mean_delta, float *variance_delta, int n,
                               int count);

/* Collective. update_network() calls it first: sums the gradients over all ranks, and changes batch
 * and momentum so that Darknet's update is that of one process with the whole batch
 * (docs/internals/mechanisms.md). Returns whether the update has been done already, with rate and
 * decay. */
int cmn_before_update(struct network *net, int *batch, float *momentum, float rate, float decay);

/* Local. update_network_gpu() of AlexeyAB's Darknet calls it for layer i: returns `leaves_out`,
 * whether this update leaves the layer out. Then its gradients keep adding up, and each rank keeps
 * its part of the sum. */
int cmn_leaves_out(struct network *net, int i, int leaves_out);

/* Collective where the batch brought an update. train_network() calls it last: reports, validates,
 * takes checkpoints, notices stop requests. Returns the loss of the whole batch; `loss` without
 * -cmn. */
float cmn_after_batch(struct network *net, float loss);

/* Local. A trainer whose network is a copy calls it: the iteration after which the training ends;
 * net->max_batches without -cmn. */
int cmn_last_iteration(struct network *net);

/* Local. A trainer with random=1 calls it: steps that the training has done over all its runs; 0
 * without -cmn. */
int cmn_steps_done(struct network *net);

/* ---- saving ---- */

/* Collective, blocking. save_weights_upto() is this: rank 0 writes the weights of the layers before
 * `cutoff`, those of AlexeyAB's average where `average` is set. The file takes the old one's place
 * when it is complete and on the disk. NULL, or why it was not written: then the old file is as it
 * was, and the training cannot continue. */
const char *cmn_save_weights(struct network *net, const char *file, int cutoff, int average);

/* ---- evaluations ---- */

/* Collective. validate_classifier_single() calls it: scores a classifier on n paths with all ranks
 * and prints the result. 0 without -cmn: then Darknet does it. */
int cmn_validate_classifier(struct network *net, char **paths, int n, char **labels, int classes,
                            int top);

/* Collective. A trainer that evaluates its own network (-map) calls them before and after it, the
 * second one with the result: all ranks evaluate what they have together, and continue with rank
 * 0's result. cmn_after_evaluation returns that; `result` without -cmn. */
void cmn_before_evaluation(struct network *net);
float cmn_after_evaluation(struct network *net, float result);

/* Collective. Evaluators of detectors, and all of AlexeyAB's, call it. `weights`: a file that each
 * rank reads next, which is to be the same on all of them, or NULL. Ends the job for a network
 * whose images ranks cannot divide, or with too few names for its classes. */
void cmn_before_evaluator(struct network *net, const char *weights);

/* Collective. A trainer calls it for -map, before it begins: ends the job where the file `names`
 * does not have one for each of the `classes`, or a label of the images of `list` is of none of
 * them. `is_train`: the file `data` names no list for it, so it is the training's, and a line says
 * so. */
void cmn_before_map(struct network *net, const char *data, const char *list, int is_train,
                    const char *names, int n, int classes);

/* Collective. -map and `detector map` of AlexeyAB's Darknet call it for `images` images, of which
 * this rank has looked for boxes in every cmn_size()th from number cmn_rank() on: found[i] and n[i]
 * become those that the ranks have found in image i, without those that have no score. Darknet
 * frees them. Without -cmn nothing changes. */
struct detection;
void cmn_share_boxes(struct network *net, struct detection **found, int *n, int images);

/* Collective; without -cmn one process does it. `detector map` calls it: looks for boxes in all
 * images of the file `list`, compares them with those of their label files, and prints average
 * precision class by class (docs/use/evaluation.md). `names`: the file with those of the classes,
 * or NULL. Counts are those of boxes with a score above `thresh`, matched where intersection over
 * union reaches `iou`; `points` is 0, 11 or 101. `json`: a file for the same as JSON, or NULL. */
void cmn_evaluate_detector(struct network *net, const char *list, const char *names, float thresh,
                           float iou, int points, const char *json);

/* Local. Darknet's other evaluators call it: this rank's part of the *n images in `paths`, in an
 * array that nobody frees, and their number in *n; the same array without -cmn. What ranks find in
 * their images arrives on rank 0 in the order of the list, round by round. */
char **cmn_split_paths(char **paths, int *n);

/* Local. The number in the whole list of this rank's i-th image. */
int cmn_global_index(int i);

/* Local. As fopen(name, "w"), before cmn_split_paths: a file into which rank 0 writes what all
 * ranks write. With -cmn it replaces an earlier one when it is closed. A file that cannot be opened
 * ends the job. */
FILE *cmn_open_result(const char *name);

/* Local, thread-safe. AlexeyAB's read_boxes() calls it if an image has no label file: warns once. */
void cmn_without_labels(const char *file);

/* Local. AlexeyAB's load_weights() calls it with what it has not read of a file. `whole`: it has read
 * all layers. A file of more or fewer values than the network has ends an evaluation; a training is
 * told of more, since it may begin with weights of some layers. */
void cmn_after_weights(const char *file, FILE *rest, int whole);

/* Local. As fclose(); ends the job if what was written is not in the file. */
void cmn_close_result(FILE *file);

/* Local. Hands the n values found for an image to rank 0, which calls take(values, n) in the order
 * of the list. `take` is the same in all calls. */
void cmn_collect(float *values, int n, void (*take)(float *values, int n));

/* Collective. Called after each image, and after all of them: the first `done` images of this rank
 * are done. */
void cmn_images_done(int done);

#ifdef __cplusplus
}
#endif

#endif

/* What needs mpi.h is there for those who have included it before, also when this file was read
 * already. */
#if defined(MPI_VERSION) && !defined(CMN_H_MPI)
#define CMN_H_MPI

#ifdef __cplusplus
extern "C" {
#endif

/* Local. The groups of all ranks, of this node's ranks, and of the ranks that have this one's
 * intra_rank on their nodes. They are the library's, apart from MPI_COMM_WORLD, return errors, and
 * end with the job. MPI_COMM_SELF before cmn_start. */
MPI_Comm cmn_world_comm(void);
MPI_Comm cmn_intra_comm(void);
MPI_Comm cmn_inter_comm(void);

#ifdef __cplusplus
}
#endif

#endif
