/* What a training takes from a checkpoint: each value of the header has a range, and each tensor
 * holds what a training writes there. The checksums are right in all of these. */
#include "check.h"
#include "nets.h"

#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <sys/stat.h>

#include "checkpoint/reader.h"
#include "cmn.h"
#include "communicators/communicator.h"
#include "engine/darknet_net.h"
#include "trainer/identity.h"
#include "trainer/trainer.h"

static struct cmn_session session;
static struct cmn_trainer *trainer;
static struct cmn_checkpointing *c;
static network *net;
static char *cfg;
static cJSON *real; /* what the checkpoint says of the training */

/* So many layers that the list of tensors grows twice. */
#define LAYER "[convolutional]\nfilters=2\nsize=3\npad=1\nbatch_normalize=1\n"
#define SIX(layers) layers layers layers layers layers layers
static const char text[] = "[net]\nbatch=2\nheight=8\nwidth=8\nchannels=1\nmax_batches=9\n" SIX(
    SIX(LAYER)) "[connected]\noutput=2\n[softmax]\n";

/* A training with a checkpoint before its first step, which it then could resume from. */
extern const struct cmn_extension cmn_checkpoint_extension;

static void open_training(void)
{
    char *words[] = {"darknet", "classifier", "train", "x", "x"};
    char name[CMN_TEXT];
    int given;

    session.on = 1;
    session.command = cmn_command_find(5, words);
    cmn_options_default(&session.options);
    session.options.checkpoint = 1;
    session.options.local_steps = 4;
    cmn_topology_open(&session.topology);
    session.communicator =
        cmn_communicator_choose(&session.topology, &session.options, &session.communicator_why);
    assert_non_null(session.communicator);
    assert_int_equal(session.communicator->open(&session.exchange, session.communicator,
                                                &session.topology, &session.options),
                     0);
    snprintf(session.backup, CMN_TEXT, "%s/cmn-resume-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(session.backup));
    cfg = nets_file(text);
    net = cmn_tree_read(cfg);
    trainer = cmn_trainer_open(&session, cmn_net_of(net), net->batch, net->subdivisions);
    net->cmn = trainer;
    cmn_trainer_attach(trainer, cmn_net_of(net), cfg);
    c = trainer->step.checkpointing;
    cmn_checkpoint_extension.save(NULL, &trainer->step);
    cmn_checkpoint_extension.after_report(NULL, &trainer->step);
    cmn_writer_wait(c->writer);
    snprintf(name, sizeof name, "%.900s/%.100s-0.checkpoint", session.backup, trainer->model.name);
    c->file = cmn_checkpoint_read(name);
    given = c->file != NULL;
    if (!given) {
        fail_msg("%s", cmn_reason());
    }
    unlink(name);
    real = cJSON_Duplicate(c->file->training, 1);
}

static void close_training(void)
{
    cJSON_Delete(real);
    cmn_tree_free(net);
    unlink(cfg);
    free(cfg);
    assert_int_equal(rmdir(session.backup), 0);
    session.communicator->close(session.exchange);
    cmn_topology_close(&session.topology);
}

/* Member `name`, of "progress" where that has one, becomes this JSON text; "" removes it. */
static cJSON *saved_with(const char *name, const char *value)
{
    cJSON *saved = cJSON_Duplicate(real, 1);
    cJSON *progress = cJSON_GetObjectItemCaseSensitive(saved, "progress");
    cJSON *in = cJSON_GetObjectItemCaseSensitive(progress, name) ? progress : saved;

    assert_non_null(cJSON_GetObjectItemCaseSensitive(in, name));
    if (!value[0]) {
        cJSON_DeleteItemFromObjectCaseSensitive(in, name);
    } else {
        cJSON_ReplaceItemInObjectCaseSensitive(in, name, cJSON_Parse(value));
    }
    return saved;
}

static int fits(const char *name, const char *value)
{
    cJSON *saved = saved_with(name, value);
    int result = cmn_identity_fits(c, saved);

    cJSON_Delete(saved);
    return result;
}

static const struct {
    const char *name, *value, *why;
} wrong[] = {
    {"ranks", "\"0\"", "ranks is 0, and must be a whole number from 1 to 1000000"},
    {"ranks", "\"-3\"", "ranks is \"-3\", and must be a whole number from 1 to 1000000"},
    {"ranks", "\"4294967297\"", "ranks is 4294967297, and must be"},
    {"ranks", "\"99999999999999999999999999999999999\"", "and must be a whole number from 1"},
    {"ranks", "2", "ranks is \"\", and must be"},
    {"ranks", "\"1x\"", "ranks is \"1x\", and must be"},
    {"seed", "\"-1\"", "seed is \"-1\", and must be a whole number from 0 to 2147483647"},
    {"seed", "\"18446744073709551616\"", "seed is 1.8446744073709552e+19, and must be"},
    {"images", "\"0\"", "images is 0, and must be a whole number from 1 to 2147483647"},
    {"list_images", "\"1e3\"", "list_images is \"1e3\", and must be"},
    {"iteration", "-1", "iteration is -1, and must be a whole number from 0 to 9007199254740992"},
    {"iteration", "1", "iteration is 1, and must be a whole number from 0 to 0"},
    {"seen", "1e300", "seen is 1.0000000000000001e+300, and must be"},
    {"seen", "null", "seen is no number, and must be one from 0 to 9007199254740992"},
    {"updates", "2000000001",
     "updates is 2000000001, and must be a whole number from 0 to 2000000000"},
    {"step_images", "0", "step_images is 0, and must be a whole number from 1 to 2147483647"},
    {"step_images", "1e-320", "step_images is 9.9998886718268301e-321, and must be"},
    {"momentum_copies", "1e9", "momentum_copies is 1000000000, and must be"},
    {"momentum_copies", "-1", "momentum_copies is -1, and must be"},
    {"steps", "0.5", "steps is 0.5, and must be a whole number"},
    {"width", "60000", "width and height are 60000 and 8, and must be 8 and 8, as the cfg says"},
    {"height", "-8", "height is -8, and must be a whole number from 0 to 2147483647"},
    {"height", "0", "width and height are 8 and 0, and must be 8 and 8"},
    {"row_at", "-1", "row_at is -1, and must be"},
    {"row_seen", "1e16", "row_seen is 10000000000000000, and must be"},
    {"row_due", "2", "row_due is 2, and must be a whole number from 0 to 1"},
    {"verify_due", "-1", "verify_due is -1, and must be"},
    {"validation_pending", "7", "validation_pending is 7, and must be"},
    {"lr", "1e39", "lr is 9.9999999999999994e+38, and must be a number from -3.40282"},
    {"lr", "\"0.1\"", "lr is no number"},
    {"skipped", "-1", "skipped is -1, and must be"},
    {"elapsed", "-0.1", "elapsed is -0.1"},
    {"elapsed", "1e13", "elapsed is 10000000000000, and must be a number from 0 to 1000000000000"},
    {"best_known", "2", "best_known is 2, and must be a whole number from 0 to 1"},
    {"best", "1.5", "best is 1.5, and must be a number from 0 to 1"},
    {"best_at", "-1", "best_at is -1, and must be"},
    {"no_better", "-1", "no_better is -1, and must be"},
    {"clipped", "-1", "clipped is -1, and must be"},
    {"ema_kept", "2", "ema_kept is 2, and must be a whole number from 0 to 1"},
    {"ema_steps", "-1", "ema_steps is -1, and must be"},
    {"unaveraged", "1e300", "unaveraged is 1.0000000000000001e+300, and must be"},
    {"progress", "[]", "iteration is no number"},
    {"progress", "", "iteration is no number"},
};

TEST(each_value_of_the_header_has_a_range)
{
    if (cmn_identity_fits(c, real)) {
        fail_msg("as it is: %s", cmn_reason());
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        cmn_fail("no reason was given");
        if (!fits(wrong[i].name, wrong[i].value)) {
            fail_msg("%s: %s was taken", wrong[i].name, wrong[i].value);
        }
        check_contains(cmn_reason(), "-0.checkpoint: its header: ");
        check_contains(cmn_reason(), wrong[i].why);
    }
}

/* Nothing of "progress" is used that was not looked at. */
TEST(no_number_may_be_missing)
{
    const cJSON *item, *progress = cJSON_GetObjectItemCaseSensitive(real, "progress");
    int n = 0;

    cJSON_ArrayForEach(item, progress)
    {
        assert_int_equal(fits(item->string, ""), -1);
        assert_int_equal(fits(item->string, "1e400"), -1);
        assert_int_equal(fits(item->string, "\"1\""), -1);
        n++;
    }
    assert_int_equal(n, 24);
}

#ifndef NETWORKS_BY_VALUE

/* As random=1 draws them, though this cfg does not: it may have been so. AlexeyAB's draws sizes
 * around the cfg's own, by a factor that the cfg names. */
TEST(sizes_that_random_draws)
{
    static const struct cmn_net_size good[] = {{8, 8}, {128, 128}, {448, 448}, {608, 608}},
                                     bad[] = {{96, 96}, {640, 640}, {320, 352}, {321, 321}};

    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(cmn_net_check_size(trainer->model.net, good[i]), 0);
        assert_int_equal(cmn_net_check_size(trainer->model.net, bad[i]), -1);
    }
    cmn_net_resize_as_drawn(trainer->model.net, (struct cmn_net_size){128, 128});
    assert_int_equal(net->w, 8);
}

#endif

/* The first item whose name contains `name`. */
static struct cmn_checkpoint_item *item(const char *name)
{
    for (int i = 0; i < c->items; i++) {
        if (strstr(c->item[i].name, name)) {
            c->item[i].got = c->item[i].bytes;
            return &c->item[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

TEST(each_tensor_holds_what_a_training_writes)
{
    struct cmn_checkpoint_item *floats[3], *since, *arrived;
    float x;
    long before;

    cmn_contents_list(c, 1);
    assert_in_range(c->items, 257, c->room);
    floats[0] = item("0.weights");
    floats[1] = item("weight_updates");
    floats[2] = item("common");
    since = item("steps-since");
    arrived = item("sums-arrived");
    assert_int_equal(cmn_contents_check(c), 0);
    for (size_t i = 0; i < COUNT(floats); i++) {
        float *at = (float *)floats[i]->data + 1;
        x = *at;
        *at = NAN;
        assert_fails(cmn_contents_check(c) == -1, "value 1 is nan, and must be a finite number");
        *at = -INFINITY;
        assert_fails(cmn_contents_check(c) == -1, "value 1 is -inf, and must be a finite number");
        *at = x;
    }
    memcpy(&before, since->data, sizeof before);
    for (int i = 0; i < 3; i++) {
        const long bad[] = {-1, 5, LONG_MIN};
        memcpy(since->data, &bad[i], sizeof bad[i]);
        assert_fails(cmn_contents_check(c) == -1, "steps-since: value 0 is ");
        check_contains(cmn_reason(), "and must be 0 to 4");
    }
    memcpy(since->data, &before, sizeof before);
    *(int *)arrived->data = 2;
    assert_fails(cmn_contents_check(c) == -1, "sums-arrived: value 0 is 2, and must be 0 to 1");
    *(int *)arrived->data = 0;
    c->row[0] = NAN; /* a loss may be */
    assert_int_equal(cmn_contents_check(c), 0);
    c->row[6] = NAN;
    assert_fails(cmn_contents_check(c) == -1,
                 "tensor row: steps is nan, and must be a whole number from 0 to");
    c->row[6] = 0;
    c->row[3] = INFINITY;
    assert_fails(cmn_contents_check(c) == -1, "tensor row: compute is inf");
    c->row[3] = 0;
}

static void look_at_nothing(struct cmn_net *of, void *context)
{
    (void)of;
    (void)context;
}

/* The memory that a training counts with is what the doctor says before. */
TEST(the_plan_is_that_of_the_cfg)
{
    struct cmn_plan said = cmn_plan_cfg(cfg, look_at_nothing, NULL), is = trainer->plan;

    assert_int_equal(is.flat, said.flat);
    assert_int_equal(is.sample, said.sample);
    assert_int_equal(is.outputs, said.outputs);
    assert_true(said.flat > said.floats && is.batch == 2 && is.subdivisions == 1);
}

int main(void)
{
    int result;

    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    MPI_Init(NULL, NULL);
    open_training();
    result = check_run(NULL, NULL);
    close_training();
    MPI_Finalize();
    return result;
}
