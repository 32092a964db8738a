/* Start and end of the job: the calls of cmn.h for them, and the program's exit. */
#include "cmn.h"

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/debug.h"
#include "base/fatal.h"
#include "base/job_stderr.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/output.h"
#include "base/random.h"
#include "base/status.h"
#include "config/arguments.h"
#include "config/cfg_keys.h"
#include "engine/darknet_tree.h"
#include "engine/plan.h"
#include "hooks/job.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "tools/host_info.h"
#include "tools/tools.h"
#include "trainer/trainer.h"
#include "transports/sums.h"
#include "watchdog/watchdog.h"

struct cmn_session cmn_job;
static atomic_int mpi_is_up;
static int mpi_is_ours; /* this library has started MPI, not the program that uses it */
static int is_darknet;  /* this is `darknet`, not your own program */

/* ---- the end ---- */

/* AWAIT_THE_END: seconds that a rank waits to be ended after another rank has printed a fatal
 * message. ABORT_AT_MOST, END_AT_MOST: limits in seconds of MPI_Abort and of end_job(). */
enum { AWAIT_THE_END = 5, ABORT_AT_MOST = 5, END_AT_MOST = 60 };

/* Sleeps for the full time, although signals interrupt sleep(). One comes from the launcher when
 * another rank has asked it to end the job; if two ranks then ended the job at the same time,
 * mpiexec of Open MPI 5 would return status 0. */
static void sleep_all(unsigned seconds)
{
    while (seconds) {
        seconds = sleep(seconds);
    }
}

/* Ends the job after an error. `kind` names the event for cmn-run: the status is 1 for "error" and
 * 75 for all others. `meanwhile` (or NULL) runs once the message is printed. A loader thread may
 * call this while the main thread is inside MPI. It calls MPI_Abort all the same, because there is
 * no other way to reach the other ranks; if MPI_Abort hangs, the alarm ends this process, and
 * mpiexec then ends the others. */
static void end_job(const char *message, const char *kind, int node, void (*meanwhile)(void))
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    char line[2048];
    const int status = strcmp(kind, "error") ? CMN_EXIT_LOST : CMN_EXIT_WRONG;
    int printed, over = 0;

    if (pthread_mutex_trylock(&once)) {
        for (;;) {
            pause(); /* another thread is already ending the job */
        }
    }
    signal(SIGALRM, SIG_DFL);
    alarm(END_AT_MOST);
    cmn_status_ending();
    cmn_output_flush();
    if (message) {
        cmn_log_prefix(line, sizeof line - 1024);
        snprintf(line + strlen(line), sizeof line - strlen(line), "%.1000s\n", message);
        printed = cmn_output_fatal(line, node);
        if (printed) {
            cmn_job_event(kind, -1, message);
        }
        if (meanwhile) {
            meanwhile();
        }
        if (!printed) {
            sleep_all(AWAIT_THE_END);
        } else if (meanwhile) {
            sleep_all(CMN_FATAL_WAIT); /* in this time the other ranks print their stacks */
        } else {
            cmn_output_await_others();
        }
    }
    alarm(ABORT_AT_MOST);
    /* MPI_Abort does not work before MPI_Init or after MPI_Finalize, and a job of one process does
     * not need it: the launcher sees the status and ends the other processes. */
    if (!atomic_load(&mpi_is_up) || cmn_job.topology.size == 1 || MPI_Finalized(&over) || over) {
        _exit(status);
    }
    cmn_launcher_abort(status);
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

/* Sets rank and host for messages, if MPI has not started yet. */
static void find_myself(void)
{
    char host[64] = "this host";
    int rank = cmn_launcher_rank();

    if (atomic_load(&mpi_is_up)) {
        return;
    }
    gethostname(host, sizeof host - 1);
    cmn_log_identity(rank > 0 ? rank : 0, host);
}

/* cmn_fatal() calls this. */
static void end_failed(const char *message, int lost)
{
    find_myself();
    end_job(message, lost ? "failure" : "error", cmn_job.topology.inter_rank, NULL);
}

static void close_job(void)
{
    cmn_status_compute("the end of the job");
    fflush(NULL);
    if (cmn_job.trainer) {
        cmn_trainer_flush(cmn_job.trainer);
    }
    cmn_sums_close(cmn_job.sums);
    cmn_job.on = 0;
    if (cmn_job.topology.rank == 0) {
        cmn_job_event("end", -1, "");
    }
    cmn_status_wait(CMN_STATUS_END);
    cmn_session_close(&cmn_job);
    if (mpi_is_ours) {
        MPI_Finalize();
    }
    cmn_watchdog_close(mpi_is_ours);
}

/* Ends `darknet` immediately after MPI_Finalize: the destructors of OpenBLAS, oneDNN, OpenMP and
 * hwloc (MPI has unloaded its own components) would only free what their idle threads still use.
 * Also ends the process if a signal has stopped the training, so that its status tells so.
 * Otherwise returns: your own program may have more to do. */
static void end_process(int status)
{
/* exit() must run where sanitizers report in it, or profilers of CUDA write their files. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(GPU)
    if (is_darknet) {
        fflush(NULL);
        _exit(status);
    }
#endif
    if (cmn_job.stop_signal) {
        _exit(status);
    }
}

/* Ends this process with `status` for a reason that every process finds by itself, possibly before
 * MPI has started or under the launcher of another MPI. A launcher ends all processes when the
 * first one ends with an error, so processes that MPI does not connect wait until the first one has
 * printed its message. Open MPI 5 sometimes reports a broken connection in this case, so the event
 * for cmn-run is written before that. */
static _Noreturn void leave(int status)
{
    char text[64];

    fflush(NULL);
    if (status && cmn_launcher_rank() <= 0) {
        find_myself();
        snprintf(text, sizeof text, "ended with status %d", status);
        cmn_job_event("error", -1, text);
    } else if (status && cmn_job.topology.size <= 1) {
        sleep(AWAIT_THE_END);
    }
    if (cmn_job.on) {
        close_job();
        end_process(status);
    }
    exit(status);
}

static void finish(int status, void *unused)
{
    (void)unused;
    if (!cmn_job.on) {
        return;
    }
    if (status != 0) {
        cmn_fatal("ended with status %d", status);
    }
    if (cmn_job.command && cmn_job.command->does == CMN_EVALUATES &&
        (fflush(stdout) || ferror(stdout))) {
        cmn_fatal("the standard output cannot be written: %s: results are lost", strerror(errno));
    }
    close_job();
    end_process(cmn_job.stop_signal ? 128 + cmn_job.stop_signal : 0);
}

void cmn_end_job_before_libraries(void)
{
    on_exit(finish, NULL); /* the handler that was registered first will then find nothing to do */
}

/* ---- the start ---- */

/* MPI calls this at the begin of MPI_Finalize: the last moment for the calls that need MPI. */
static int before_the_end_of_mpi(MPI_Comm self, int key, void *value, void *extra)
{
    (void)self;
    (void)key;
    (void)value;
    (void)extra;
    if (cmn_job.on) {
        close_job();
    }
    return MPI_SUCCESS;
}

/* A program that has started MPI also ends it, possibly before its exit. */
static void close_before_mpi_ends(void)
{
    int key = MPI_KEYVAL_INVALID;

    MPI_CALL(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, before_the_end_of_mpi, &key, NULL));
    MPI_CALL(MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL));
}

/* Ends the process if srun started it without a PMI that Open MPI can use: Open MPI 5 would then
 * make a world of each process, and Open MPI 4 fails with pages of text, even for one process.
 * Other MPIs may have another way to start under srun. */
static void check_launch(void)
{
#ifdef OPEN_MPI
    if (cmn_arguments_without_pmi(OMPI_MAJOR_VERSION < 5 ? 1 : 2)) {
        if (cmn_launcher_rank() <= 0) {
            cmn_fatal_reason();
        }
        leave(1);
    }
#endif
}

static void start_mpi(int *argc, char ***argv)
{
    int provided = MPI_THREAD_SERIALIZED, running = 0, length = 0;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];

    cmn_fatal_handler(end_failed);
    MPI_Initialized(&running);
    if (!running) {
        check_launch();
        MPI_Get_library_version(library, &length);
        cmn_launcher_prepare(library);
    }
    if (!running && MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        fprintf(stderr, "cmn: MPI_Init_thread failed\n");
        leave(1);
    }
    mpi_is_ours = !running;
    atomic_store(&mpi_is_up, 1);
    cmn_job.on = 1;
    on_exit(finish, NULL);
    if (provided < MPI_THREAD_FUNNELED) {
        cmn_fatal("this MPI library cannot be used by a program with threads: build it with "
                  "support for threads");
    }
    cmn_session_open(&cmn_job);
    if (running) {
        close_before_mpi_ends();
    }
}

/* Seconds that the start of a training may always take: a short cmn_timeout is not meant for the
 * start. */
enum { START_AT_LEAST = 60 };

/* The watchdog calls this: MPI does not say what it waits for while it starts. */
static void start_is_late(const char *doing, long seconds)
{
    char host[64] = "this host", nics[128], text[512];
    int n = snprintf(text, sizeof text, "nothing moved for %ld s in: %s", seconds, doing);

    gethostname(host, sizeof host - 1);
    if (cmn_job.topology.inter_size != 1) {
        snprintf(text + n, sizeof text - (size_t)n,
                 ". MPI may be waiting for a network that does not lead to the other hosts; %s "
                 "has: %s. Name the common one with mpiexec --mca btl_tcp_if_include NAME; more in "
                 "docs/use/troubleshooting.md",
                 host, cmn_nics_text(nics, sizeof nics));
    }
    find_myself();
    end_job(text, "start-timeout", cmn_job.topology.inter_rank, NULL);
}

/* The watchdog calls this when other ranks do not respond; so there is no wait for their fatal
 * message. */
static void end_lost(const char *why, void (*meanwhile)(void))
{
    end_job(why, "failure", 0, meanwhile);
}

/* Starts a job of `darknet`: only rank 0 prints, and a start of more than cmn_timeout or `at_least`
 * seconds ends the job, as does any later wait of cmn_timeout. */
static void start_darknet(int *argc, char ***argv, long at_least)
{
    const struct cmn_watchdog_plan plan = {
        .limit = cmn_job.options.timeout,
        .at_least = at_least,
        .late = start_is_late,
        .end = end_lost,
    };

    is_darknet = 1;
    cmn_fatal_handler(end_failed);
    /* Writing beyond `ulimit -f` then fails with an errno. */
    signal(SIGXFSZ, SIG_IGN);
    cmn_session_check_limits(); /* before threads start, since each takes address space */
    cmn_watchdog_start(&plan);
    cmn_status_wait("the start of MPI");
    start_mpi(argc, argv);
    cmn_output_open(cmn_job.topology.rank, cmn_job.topology.size, cmn_job.options.log);
    if (cmn_job.topology.rank == 0) {
        cmn_job_event("start", -1, "");
    }
}

static void refuse_copies(void)
{
    if (cmn_arguments_alone(cmn_job.topology.size)) {
        if (cmn_launcher_rank() <= 0) {
            cmn_fatal_reason();
        }
        leave(1);
    }
}

/* Removes -nogpu from the arguments and returns the GPU for a tool, or -1. */
static int device_of_tool(int *argc, char **argv)
{
    int kept = 0, device = cmn_rank_device();

    device = cmn_device_count() ? device : -1;
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "-nogpu")) {
            device = -1;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return device;
}

static void run_tool(int argc, char **argv)
{
    const struct cmn_tool *tool = cmn_tool_find(argc, argv);
    struct cmn_arguments found;
    char reason[1024] = "";
    struct cmn_tool_call call = {.session = &cmn_job};
    int device;

    if (!tool) {
        leave(1);
    }
    if (tool->run) {
        leave(cmn_tool_run(tool, argc - 2, argv + 2));
    }
    cmn_options_default(&cmn_job.options);
    if (cmn_arguments_take(&argc, argv, &cmn_job.options, &found) || cmn_debug_check()) {
        snprintf(reason, sizeof reason, "%s", cmn_reason());
    }
    start_darknet(&argc, &argv, 0);
    if (reason[0]) {
        cmn_fatal("%s", reason);
    }
    if (!tool->copies) {
        refuse_copies();
    }
    device = device_of_tool(&argc, argv);
    cmn_tool_compare(argc, argv, &cmn_job);
    cmn_plan_device(device);
    cmn_device_agree(&cmn_job.topology, device);
    call.argc = argc - 2;
    call.argv = argv + 2;
    cmn_tool_run_job(tool, &call);
    leave(call.status);
}

/* Returns whether the arguments ask for help: `darknet help -cmn`, `darknet detector train -cmn
 * -h`. */
static int asks_help(int argc, char **argv)
{
    const char *last = argv[argc - 1];

    return argc > 1 && (!strcmp(argv[1], "help") || !strcmp(last, "-h") || !strcmp(last, "--help"));
}

/* Prints the keys by group. Returns if a command is given, so that Darknet prints the arguments of
 * that command and ends. */
static void help(int argc)
{
    if (cmn_launcher_rank() > 0) {
        leave(0);
    }
    cmn_tool_list_keys();
    putchar('\n');
    if (argc == 2) {
        printf("darknet detector train -h shows the arguments of a command, darknet cmn list "
               "communicators and compressors.\n");
        leave(0);
    }
}

/* Ends the job if the command needs a .data file and a cfg and there are fewer words: AlexeyAB's
 * Darknet would crash. */
static void check_count(int argc, char **argv)
{
    const struct cmn_command *c = cmn_job.command;
    int words = 0;

    for (int i = 1; i < argc; i++) {
        words += argv[i][0] != '-';
    }
    if (cmn_tree.has_more && words < 4 &&
        (!strcmp(c->driver, "detector") || !strcmp(c->driver, "classifier"))) {
        cmn_fatal("%s needs a .data file and a cfg: darknet %s DATA CFG [WEIGHTS] -cmn",
                  cmn_command_name(c), cmn_command_name(c));
    }
}

/* Ends the job if the command cannot run on several ranks. */
static void check_words(int argc, char **argv)
{
    const struct cmn_command *c = cmn_job.command;
    const char *nearest = cmn_command_nearest(argc, argv);
    const char *why = cmn_tree_refusal(NULL, argv);

    if (why) {
        cmn_fatal("%s", why);
    }
    if (c->does == CMN_REFUSED && nearest && (argc < 3 || strcmp(c->verb, argv[2]))) {
        cmn_fatal("not a command: %s%s%s; did you mean %s?", argv[1], argc > 2 ? " " : "",
                  argc > 2 ? argv[2] : "", nearest);
    }
    if (c->does == CMN_REFUSED) {
        cmn_fatal("-cmn does not work with %s: %s", cmn_command_name(c), c->note);
    }
    check_count(argc, argv);
}

/* Tells the tables of config/ which of their rows apply to this tree of Darknet. */
static void know_tree(void)
{
    if (!cmn_tree.has_all_hooks) {
        cmn_commands_in_both(cmn_tree.whose);
    }
    if (cmn_tree.has_more) {
        cmn_cfg_declare_more();
        cmn_arguments_none_elsewhere();
    }
}

void cmn_init(int *argc, char **argv)
{
    struct cmn_arguments found;
    char reason[1024] = "";

    if (*argc == 2 && !strcmp(argv[1], "--version")) {
        cmn_host_info_print_version(stdout);
        exit(0);
    }
    know_tree();
    if (*argc > 1 && !strcmp(argv[1], "cmn")) {
        run_tool(*argc, argv);
    }
    cmn_options_default(&cmn_job.options);
    if (cmn_arguments_take(argc, argv, &cmn_job.options, &found) || cmn_debug_check()) {
        snprintf(reason, sizeof reason, "%s", cmn_reason());
    }
    if (!found.on) {
        if (found.key) {
            if (cmn_launcher_rank() <= 0) {
                fprintf(stderr, "cmn: a -cmn_ key was given without -cmn: add -cmn\n");
            }
            leave(1);
        }
        cmn_arguments_warn_of_copies();
        cmn_arguments_drop_elsewhere(argc, argv);
        return;
    }
    cmn_job.command = found.command;
    if (asks_help(*argc, argv)) {
        help(*argc);
        return;
    }
    cmn_job.starts_over = found.clear;
    cmn_job.save_weights = found.save_weights;
    start_darknet(argc, &argv, START_AT_LEAST);
    cmn_status_compute("reading cfg, lists and weights");
    if (reason[0]) {
        cmn_fatal("%s", reason);
    }
    refuse_copies();
    cmn_arguments_drop_elsewhere(argc, argv);
    if (cmn_job.topology.intra_size > 1) {
        cmn_arguments_drop_gpus(argc, argv);
    }
    check_words(*argc, argv);
    cmn_watchdog_open(&cmn_job.topology, &cmn_job.options);
}

/* ---- for programs of your own ---- */

void cmn_start(void)
{
    if (!cmn_job.on) {
        int running = 0;
        cmn_options_default(&cmn_job.options);
        MPI_Initialized(&running);
        if (!running) {
            cmn_session_check_limits();
        }
        start_mpi(NULL, NULL);
    }
}

/* ---- other calls from Darknet ---- */

int cmn_rank_device(void)
{
    return cmn_job.on && cmn_device_built() ? cmn_device_choose(&cmn_job.topology) : 0;
}

unsigned long cmn_rank_seed(unsigned long seed)
{
    uint64_t rank = (uint64_t)cmn_job.topology.rank;

    return cmn_job.on ? (unsigned long)cmn_random_hash(cmn_job.seed, CMN_RANDOM_DEVICE, rank,
                                                       (uint64_t)cmn_job.resumed_steps)
                      : seed;
}

void cmn_error(const char *format, ...)
{
    char message[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (cmn_job.on) {
        cmn_fatal("%s", message);
    }
}

int cmn_rand(void)
{
    return cmn_job.on ? cmn_random_int() : rand();
}
