/* darknet-cmn: data-parallel training for Darknet. The only header that Darknet's patched source
 * includes, and the one for programs of your own: see "for programs of your own" at the end, and
 * examples/world/.
 *
 * A job is started by mpiexec, every process holds the whole network and its share of the batch,
 * and between backward and update the gradients are summed over all of them:
 *
 *     mpiexec -n 4 darknet classifier train my.data my.cfg -cmn
 *
 * Without -cmn on the command line every call below returns at once, and says what Darknet would
 * have done itself. With it, "collective" calls must be reached by all ranks in the same order.
 * A call that fails does not return: it ends the whole job with one line and a status that is not
 * 0. Calls belong to the main thread unless they are said to be thread-safe. */
#ifndef CMN_H
#define CMN_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct network;
struct list;

/* ---- the job ---- */

/* Takes -cmn and every -cmn_key VALUE out of the arguments; runs `darknet cmn …` and ends. With
 * -cmn: starts MPI (collective) and prepares this process's output. */
void cmn_init(int *argc, char **argv);

/* Local. This process's number and how many there are; 0 and 1 without -cmn. */
int cmn_rank(void);
int cmn_size(void);

/* Local. The number of the GPU that this process should use unless it is told another one; 0 without
 * -cmn. */
int cmn_rank_device(void);

/* Local. The seed of a GPU's own random numbers: `seed` without -cmn, else one that follows from cmn_seed and
 * differs by rank. Not before the cfg is read. */
unsigned long cmn_rank_seed(unsigned long seed);

/* Local, thread-safe. Does not return: says the message in one line with rank and host, once for the job, and ends all ranks with
 * status 1. Without -cmn it ends this process with the message alone. */
void cmn_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Local, thread-safe. The next of 31 random bits, as rand(): from the stream of what the thread is doing. */
int cmn_rand(void);

/* ---- reading cfg, data file and lists ---- */

/* Collective. Reads the cmn_ keys among the options of [net]. Returns the images that this rank takes
 * in one pass when the cfg says `batch` (already divided by subdivisions). */
int cmn_rank_batch(struct network *net, struct list *options, int batch);

/* Local. Whether this rank reads the weights file: only rank 0 does. */
int cmn_reads_weights(void);

/* Collective. After a network is loaded: compares it over the ranks, gives all of them rank 0's
 * weights, moves its gradients to one block. */
void cmn_after_load_network(struct network *net, const char *cfg);

/* Local. Before a network is freed: takes the block away again. */
void cmn_before_free_network(struct network *net);

/* Local, without -cmn, too. Whether what follows in a weights file that was read to the network's end is the rest of a checkpoint, which
 * is no reason to wonder. */
int cmn_checkpoint_follows(FILE *weights);

/* Collective. After a .data file is read: checks the backup folder, reads the validation list. */
void cmn_after_data_cfg(struct list *options);

/* Collective. As fopen(name, "r"), but rank 0 reads the file for all. */
FILE *cmn_fopen(const char *name);

/* Collective. A file that each rank reads by itself: it is the same on all of them, or the job ends. */
void cmn_require_same_file(const char *file);

/* Collective. The samples of the network loaded last lie in memory, and so many of them are an epoch. */
void cmn_samples_in_memory(size_t samples);

/* Local. Weights could not be written, for this reason (errno), on the rank that writes: whether the training goes on all the same, as it has
 * checkpoints and is not at its end, which is said then; 0 without -cmn. */
int cmn_weights_not_written(struct network *net, const char *file, int reason);

/* Local. Steps that the training has done, counted over all runs since it began; 0 without -cmn. */
int cmn_steps_done(struct network *net);

/* Collective. Where sequence j of this rank's begins is in offset[j], and the training's checkpoints keep it. Whether it has been set to
 * what a checkpoint had; 0 without -cmn. */
int cmn_restore_offset(struct network *net, size_t *offset, int j);

/* ---- loading images ---- */

/* Local. Called once for each batch of n images out of a list of `images`; returns the number of
 * the batch's first sample. One thread at a time. */
size_t cmn_next_batch(int n, int images);

/* Local. The batch drawn last was thrown away unused: the next one is the same. */
void cmn_rewind_batch(void);

/* Local. The next of samples that lie in memory, 0 to rows - 1; rand() % rows without -cmn. */
int cmn_next_sample(int rows);

/* Local. What is drawn from now on, until the next pass, is for sequence i of this rank's part of a batch: it does not
 * depend on how many ranks share the batch. */
void cmn_seed_sequence(struct network *net, int i);

/* Thread-safe. The calling thread is going to load the samples from this number on. */
void cmn_loader_load(size_t first);

/* Thread-safe. The paths (the caller frees the array, not the names) of the next n samples of the
 * calling thread; NULL without -cmn. */
char **cmn_loader_paths(char **paths, int n);

/* Thread-safe. A copy (the caller frees) of the decoded image if it is kept in memory, else NULL.
 * Moves the calling thread's random numbers on to its next sample. */
unsigned char *cmn_cached_image(const char *file, int channels, int *w, int *h, int *c);

/* Thread-safe. Keeps a copy of a decoded image while memory allows. */
void cmn_cache_image(const char *file, int channels, int w, int h, int c,
                     const unsigned char *pixels);

/* ---- training ---- */

/* Local. Images that all ranks together take in one pass; net->batch without -cmn. */
int cmn_global_batch(struct network *net);

/* Local. As cmn_global_batch; a pass (forward and backward) begins. */
int cmn_before_micro_batch(struct network *net);

/* Local. A pass has ended. `last` says whether Darknet takes it for the last of its subdivisions;
 * returns whether it is. */
int cmn_after_micro_batch(struct network *net, int last);

/* Local. Layer i has done its part of a pass, forward or backward: what is exchanged in the background moves on.
 * After the last pass of a step the gradients of layer i and above are final, and may be exchanged. */
void cmn_after_forward(struct network *net, int i);
void cmn_after_backward(struct network *net, int i);

/* Local. Called often during a pass: what is exchanged in the background moves on. Cheap. */
void cmn_progress(void);

/* Local. Whether batch normalisation is to use the statistics of all ranks now (cmn_sync_bn, in a pass of a training), so that
 * they must pass through the two calls below; 0 without -cmn. */
int cmn_syncs_batch_norm(struct network *net);

/* Collective where cmn_syncs_batch_norm() says so, otherwise nothing happens. A layer has found mean and variance of its n
 * filters, each over `count` values: they become those of all ranks' values. On the GPU when the network trains there. */
void cmn_sync_statistics(struct network *net, float *mean, float *variance, int n, int count);

/* The same for the sums of which its backward is going to divide each by `count`. */
void cmn_sync_statistic_deltas(struct network *net, float *mean_delta, float *variance_delta, int n,
                               int count);

/* Collective. Before the update: sums the gradients over all ranks, and changes batch and momentum
 * so that the update is that of one process with the whole batch (docs/architecture.md). Returns whether the
 * update has been done already, with rate and decay. */
int cmn_before_update(struct network *net, int *batch, float *momentum, float rate, float decay);

/* Collective. After a batch: reports, validates, notices a request to stop. Returns the loss of
 * the whole batch, `loss` without -cmn. */
float cmn_after_batch(struct network *net, float loss);

/* Collective. Before weights are saved in that file: whether this rank writes them. Rank 0 does. */
int cmn_before_save_weights(struct network *net, const char *file);

/* Local. After weights were saved, on the rank that has written them. */
void cmn_after_save_weights(struct network *net);

/* Collective. Scores a classifier on n paths with all ranks and prints the result; 0 without -cmn:
 * then Darknet does it. */
int cmn_validate_classifier(struct network *net, char **paths, int n, char **labels, int classes,
                            int top);

/* ---- evaluating ---- */

/* Collective; without -cmn one process does it. Looks for boxes in all images of the file `list`, compares them with those of
 * their label files, and prints average precision class by class (docs/evaluation.md). `names` may be NULL: the file with
 * those of the classes. Counts are those of boxes with a score above `thresh`, matched where intersection over
 * union reaches `iou`; `points` is 0, 11 or 101. `json` is a file for the same as JSON, or NULL. */
void cmn_evaluate_detector(struct network *net, const char *list, const char *names, float thresh,
                           float iou, int points, const char *json);

/* Local. This rank's share of the *n images in `paths`, in an array that nobody frees, and their number in *n: the same without
 * -cmn. What ranks find out of their images arrives on rank 0 in the order of the list, round by round. */
char **cmn_split_paths(char **paths, int *n);

/* Local. The number in the whole list of this rank's i-th image. */
int cmn_global_index(int i);

/* Local. As fopen(name, "w"), before cmn_split_paths: a file into which rank 0 writes what all ranks write. */
FILE *cmn_open_result(const char *name);

/* Local. What is known of an image: `take`, the same one in all calls, is called with the n values on rank 0. */
void cmn_collect(float *values, int n, void (*take)(float *values, int n));

/* Collective. The first `done` images of this rank are done. Called after each image, and after all of them. */
void cmn_images_done(int done);

/* Collective. Scores a classifier as `classifier validcrop` does, on n paths with all ranks, and prints the result; 0
 * without -cmn: then Darknet does it. */
int cmn_validate_classifier_crop(struct network *net, char **paths, int n, char **labels,
                                 int classes, int top);

/* ---- for programs of your own ----
 *
 *     #include <mpi.h>    // first, if you want the groups
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
 * Any number of processes, started by mpiexec; one works without it. The job ends by itself when main returns or
 * exit is called with 0 on all ranks. A rank that ends with another status, or that calls cmn_fatal, ends all of
 * them. Before cmn_start each call below is that of a world of one process. */

/* Collective, blocking. Starts MPI, unless the program has done so (then the program ends it, too), and finds
 * this process's place. Divides OpenBLAS's threads among the ranks of a machine, unless the environment sets
 * them. Takes nothing from the command line. A second call does nothing. After a program's own MPI_Finalize each call
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

/* Collective, blocking. Rank 0's bytes at `data` go to all ranks; `bytes` is the same on all of them. */
void cmn_broadcast(void *data, size_t bytes);

/* Collective, blocking. Each of the n floats at `data` becomes its mean over all ranks; n is the same on
 * all of them, and may be 0. The same bits on all ranks. */
void cmn_mean(float *data, size_t n);

/* Collective, blocking. Returns when all ranks have called it. */
void cmn_barrier(void);

#ifdef __cplusplus
}
#endif

#endif

/* What needs mpi.h is there for those who have included it before, also when this file was read already. */
#if defined(MPI_VERSION) && !defined(CMN_H_MPI)
#define CMN_H_MPI

#ifdef __cplusplus
extern "C" {
#endif

/* Local. The groups of all ranks, of this node's ranks, and of the ranks that have this one's intra_rank on their
 * nodes. They are the library's, apart from MPI_COMM_WORLD, return errors, and end with the job. MPI_COMM_SELF before
 * cmn_start. */
MPI_Comm cmn_world_comm(void);
MPI_Comm cmn_intra_comm(void);
MPI_Comm cmn_inter_comm(void);

#ifdef __cplusplus
}
#endif

#endif
