/* The lock of a folder, also where flock(2) fails as file systems make it fail: Lustre without
 * -o flock, NFS without its lock daemon, a disk with errors. */
#include "checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/directory.h"
#include "checkpoint/lock.h"

/* errno of flock; 0: as the kernel has it. NFS takes an exclusive lock only of what may be
 * written. */
enum { AS_NFS = -1 };
static int fails_with;

/* In place of libc's. Time that somebody sleeps passes at once. */
static long slept; /* ns */

int flock(int fd, int operation)
{
    if (fails_with == AS_NFS ? (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR : fails_with) {
        errno = fails_with == AS_NFS ? EBADF : fails_with;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    slept += time->tv_sec * 1000000000 + time->tv_nsec;
    return 0;
}

int clock_gettime(clockid_t which, struct timespec *time)
{
    int result = (int)syscall(SYS_clock_gettime, which, time);

    time->tv_sec += slept / 1000000000;
    return result;
}

static const int none[] = {EOPNOTSUPP, ENOSYS, ENOLCK}, bad[] = {EIO, ESTALE, EBADF, EACCES};

static const char file[] = ".x.checkpoint-lock";

static int is_there(void)
{
    return !access(checkpoints_path(file), F_OK);
}

static int take(void)
{
    int at = cmn_directory_open(folder), fd;

    assert_true(at >= 0);
    cmn_fail("no reason was given");
    fd = cmn_lock_take(at, "x");
    close(at);
    return fd;
}

static void may_take(void)
{
    int fd = take(), at = cmn_directory_open(folder);

    if (fd < 0) {
        fail_msg("%s", cmn_reason());
    }
    assert_true(cmn_lock_holds(fd));
    assert_true(is_there());
    cmn_lock_release(at, "x", fd);
    close(at);
    assert_int_equal(checkpoints_files(), 0);
}

static pid_t holder(void)
{
    int ready[2];
    char c = 'n';
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c = take() < 0 ? 'n' : 'y';
        if (write(ready[1], &c, 1) == 1) {
            pause();
        }
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* The lock's file as such a process left it; "" of a field: as this one's. */
static void leave(const char *host, const char *boot, long pid, const char *job)
{
    char here[64] = "", text[256], its_boot[40];
    unsigned long space = 0;
    struct stat st;
    FILE *in = fopen("/proc/sys/kernel/random/boot_id", "r"), *out;

    assert_non_null(in);
    assert_int_equal(fscanf(in, "%39s", its_boot), 1);
    fclose(in);
    gethostname(here, sizeof here - 1);
    if (!stat("/proc/self/ns/pid", &st)) {
        space = (unsigned long)st.st_ino;
    }
    snprintf(text, sizeof text, "process %ld on %s\nf %s %lu %ld 1 %s%s\n", pid,
             host[0] ? host : here, boot[0] ? boot : its_boot, space, pid, job,
             strchr(job, ' ') ? "" : " 0 0");
    out = fopen(checkpoints_path(file), "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void one_at_a_time_without_locks(void **state)
{
    char text[160];
    pid_t pid;

    (void)state;
    for (size_t i = 0; i < COUNT(none); i++) {
        fails_with = none[i];
        may_take();
        pid = holder();
        assert_int_equal(take(), -1);
        snprintf(text, sizeof text, "process %ld on ", (long)pid);
        check_contains(cmn_reason(), text);
        check_contains(cmn_reason(), "trains x there: wait until it has ended");
        check_contains(cmn_reason(), "(if it has ended, remove .x.checkpoint-lock)");
        /* Nor does a process for which flock works take it. */
        fails_with = 0;
        assert_int_equal(take(), -1);
        check_contains(cmn_reason(), text);
        fails_with = i ? none[i] : 0;
        end(pid);
        assert_true(is_there());
        may_take();
    }
}

static void a_file_that_may_be_written(void **state)
{
    pid_t pid;

    (void)state;
    fails_with = AS_NFS;
    may_take();
    pid = holder();
    assert_int_equal(take(), -1);
    end(pid);
    may_take();
}

static void others_errors_are_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        char text[128];
        fails_with = bad[i];
        assert_int_equal(take(), -1);
        snprintf(text, sizeof text, ".x.checkpoint-lock: cannot be locked: %s", strerror(bad[i]));
        check_contains(cmn_reason(), text);
        assert_true(is_there());
        unlink(checkpoints_path(file));
    }
}

static void what_was_left(void **state)
{
    char job[32];

    (void)state;
    for (int i = 0; i < 2; i++) {
        fails_with = i ? ENOLCK : 0;
        leave("", "", 999999999, "0"); /* no such process */
        may_take();
        leave("", "", getppid(), "0"); /* another process has its number now */
        may_take();
        leave("", "before-it-was-started-anew", getppid(), "0");
        may_take();
        leave("elsewhere", "another-boot", 1, "0"); /* who knows */
        assert_int_equal(take(), -1);
        check_contains(cmn_reason(), "process 1 on elsewhere trains x there");
        /* An earlier attempt of this cmn-run, on a host that has failed. */
        setenv("OMPI_CMN_EVENT_TOKEN", "00000000000000000042", 1);
        leave("elsewhere", "another-boot", 1, "7");
        assert_int_equal(take(), -1);
        snprintf(job, sizeof job, "%llx",
                 (unsigned long long)cmn_checksum("00000000000000000042", 20));
        leave("elsewhere", "another-boot", 1, job);
        may_take();
        leave("elsewhere", "another-boot", getpid(), job);
        may_take();
        unsetenv("OMPI_CMN_EVENT_TOKEN");
        /* An earlier start of this job of Slurm's, another job, and a training beside this one. */
        setenv("SLURM_JOB_ID", "42", 1);
        setenv("SLURM_RESTART_COUNT", "1", 1);
        leave("elsewhere", "another-boot", 1, "0 42 0");
        may_take();
        leave("elsewhere", "another-boot", 1, "0 41 0");
        assert_int_equal(take(), -1);
        leave("elsewhere", "another-boot", 1, "0 42 1");
        assert_int_equal(take(), -1);
        unsetenv("SLURM_JOB_ID");
        unsetenv("SLURM_RESTART_COUNT");
    }
}

/* A file that says nothing is left over for flock, and may be somebody's without it. */
static void an_empty_file(void **state)
{
    int fd = open(checkpoints_path(file), O_CREAT | O_WRONLY, 0600);

    (void)state;
    close(fd);
    fails_with = ENOSYS;
    assert_int_equal(take(), -1);
    check_contains(cmn_reason(), "another process trains x there");
    fails_with = 0;
    may_take();
}

/* The folder is removed, and made anew. */
static void a_lock_that_is_gone(void **state)
{
    int fd, at;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fails_with = i ? ENOLCK : 0;
        fd = take();
        assert_true(fd >= 0 && cmn_lock_holds(fd));
        unlink(checkpoints_path(file));
        assert_false(cmn_lock_holds(fd));
        at = cmn_directory_open(folder);
        cmn_lock_release(at, "x", fd);
        close(at);
        may_take();
    }
}

/* The folder is removed between its opening and the lock: an error, at once. */
static void a_folder_that_is_gone(void **state)
{
    char gone[PATH_MAX];
    int at;

    (void)state;
    snprintf(gone, sizeof gone, "%s", checkpoints_path("gone"));
    assert_int_equal(mkdir(gone, 0700), 0);
    at = cmn_directory_open(gone);
    assert_true(at >= 0);
    assert_int_equal(rmdir(gone), 0);
    alarm(300);
    assert_int_equal(cmn_lock_take(at, "x"), -1);
    alarm(0);
    check_contains(cmn_reason(), ".x.checkpoint-lock: No such file or directory");
    close(at);
}

static int empty(void **state)
{
    fails_with = 0;
    return checkpoints_empty(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_at_a_time_without_locks, empty),
        cmocka_unit_test_teardown(a_file_that_may_be_written, empty),
        cmocka_unit_test_teardown(others_errors_are_a_line, empty),
        cmocka_unit_test_teardown(what_was_left, empty),
        cmocka_unit_test_teardown(an_empty_file, empty),
        cmocka_unit_test_teardown(a_lock_that_is_gone, empty),
        cmocka_unit_test_teardown(a_folder_that_is_gone, empty),
    };

    return cmocka_run_group_tests(tests, checkpoints_setup, NULL);
}
