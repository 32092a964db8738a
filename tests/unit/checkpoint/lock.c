/* The lock of a folder. flock(2) fails here, as on file systems without it: nothing may need it. */
#include "checkpoints.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>

#include "checkpoint/directory.h"
#include "checkpoint/lock.h"

/* In place of libc's. Time that somebody sleeps passes at once. */
static long slept; /* ns */

int flock(int fd, int operation)
{
    (void)fd;
    (void)operation;
    errno = ENOLCK;
    return -1;
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

static const char file[] = ".x.checkpoint-lock";

static int is_there(void)
{
    return !access(in_folder(file), F_OK);
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

    assert_done(fd >= 0);
    assert_true(cmn_lock_holds(at, "x", fd));
    assert_true(is_there());
    cmn_lock_release(at, "x", fd);
    close(at);
    assert_int_equal(files_in(folder), 0);
}

static void hold(void)
{
    if (take() < 0) {
        _exit(1);
    }
}

/* The lock's file as such a process left it; "" of a field: as this one's. `job`: cmn-run's, and then the
 * attempt, Slurm's job and its restarts, or nothing. */
static void leave(const char *host, const char *boot, long pid, const char *job)
{
    char here[64] = "", text[256], its_boot[40];
    struct stat st = {.st_ino = 0};

    snprintf(its_boot, sizeof its_boot, "%.36s", text_of("/proc/sys/kernel/random/boot_id"));
    gethostname(here, sizeof here - 1);
    stat("/proc/self/ns/pid", &st);
    snprintf(text, sizeof text, "process %ld on %s\n%s %lu %ld 1 %s%s\n", pid,
             host[0] ? host : here, boot[0] ? boot : its_boot, (unsigned long)st.st_ino, pid, job,
             strchr(job, ' ') ? "" : " 0 0 0");
    file_of(file, text);
}

/* As a process of another host, of whose end nothing is known. */
static void leave_elsewhere(const char *job)
{
    leave("elsewhere", "another-boot", 1, job);
}

TEST(one_at_a_time)
{
    int at = cmn_directory_open(folder), fd;
    char text[160];
    pid_t pid;

    may_take();
    pid = holder(hold);
    snprintf(text, sizeof text, "process %ld on ", (long)pid);
    assert_fails(take() == -1, text);
    check_contains(cmn_reason(), "trains x there: wait until it has ended");
    assert_null(strstr(cmn_reason(), "remove")); /* it runs */
    fd = cmn_lock_take(at, "y");                 /* of another name */
    assert_true(fd >= 0);
    cmn_lock_release(at, "y", fd);
    close(at);
    end(pid);
    assert_true(is_there());
    may_take();
}

TEST(what_was_left)
{
    char job[32];

    leave("", "", 999999999, "0"); /* no such process */
    may_take();
    leave("", "", getppid(), "0"); /* another process has its number now */
    may_take();
    leave("", "before-it-was-started-anew", getppid(), "0");
    may_take();
    leave_elsewhere("0"); /* who knows */
    assert_fails(take() == -1, "process 1 on elsewhere may train x there");
    check_contains(cmn_reason(), "(if it has ended, remove .x.checkpoint-lock)");
    /* An earlier attempt of this cmn-run, on a host that has failed; a later one; another cmn-run's. */
    setenv("OMPI_CMN_EVENT_TOKEN", "00000000000000000042", 1);
    setenv("OMPI_CMN_ATTEMPT", "2", 1);
    leave_elsewhere("7 1 0 0");
    assert_int_equal(take(), -1);
    for (int attempt = 1; attempt <= 3; attempt++) {
        snprintf(job, sizeof job, "%llx %d 0 0",
                 (unsigned long long)cmn_checksum("00000000000000000042", 20), attempt);
        leave_elsewhere(job);
        if (attempt == 1) {
            may_take();
        } else {
            assert_int_equal(take(), -1);
        }
    }
    unsetenv("OMPI_CMN_EVENT_TOKEN");
    unsetenv("OMPI_CMN_ATTEMPT");
    /* An earlier start of this job of Slurm's, another job, and a training beside this one. */
    setenv("SLURM_JOB_ID", "42", 1);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    leave_elsewhere("0 0 42 0");
    may_take();
    leave_elsewhere("0 0 41 0");
    assert_int_equal(take(), -1);
    leave_elsewhere("0 0 42 1");
    assert_int_equal(take(), -1);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
}

/* What an older attempt had is a newer one's: the older one sees it, and does not take it back. */
TEST(an_older_attempt)
{
    int old, fresh, at = cmn_directory_open(folder);

    setenv("OMPI_CMN_EVENT_TOKEN", "00000000000000000042", 1);
    setenv("OMPI_CMN_ATTEMPT", "1", 1);
    old = take();
    assert_true(old >= 0);
    setenv("OMPI_CMN_ATTEMPT", "2", 1);
    fresh = take();
    assert_true(fresh >= 0 && cmn_lock_holds(at, "x", fresh) && !cmn_lock_holds(at, "x", old));
    setenv("OMPI_CMN_ATTEMPT", "1", 1);
    assert_int_equal(take(), -1);
    cmn_lock_release(at, "x", old);
    assert_true(is_there() && cmn_lock_holds(at, "x", fresh));
    cmn_lock_release(at, "x", fresh);
    assert_false(is_there());
    unsetenv("OMPI_CMN_EVENT_TOKEN");
    unsetenv("OMPI_CMN_ATTEMPT");
    close(at);
}

/* A file that says nothing may be somebody's. */
TEST(an_empty_file)
{
    file_of(file, "");
    assert_fails(take() == -1, "another process may train x there");
    check_contains(cmn_reason(), "(if it has ended, remove .x.checkpoint-lock)");
}

/* The folder is removed, and made anew, or another one takes its place. */
TEST(a_lock_that_is_gone)
{
    int fd = take(), at = cmn_directory_open(folder), other;

    assert_true(fd >= 0 && cmn_lock_holds(at, "x", fd));
    assert_int_equal(mkdir(in_folder("other"), 0700), 0);
    other = cmn_directory_open(in_folder("other"));
    assert_false(cmn_lock_holds(other, "x", fd));
    close(other);
    rmdir(in_folder("other"));
    unlink(in_folder(file));
    assert_false(cmn_lock_holds(at, "x", fd));
    cmn_lock_release(at, "x", fd);
    close(at);
    may_take();
}

/* The folder is removed between its opening and the lock: an error, at once. */
TEST(a_folder_that_is_gone)
{
    const char *gone = in_folder("gone");
    int at;

    assert_int_equal(mkdir(gone, 0700), 0);
    at = cmn_directory_open(gone);
    assert_true(at >= 0);
    assert_int_equal(rmdir(gone), 0);
    alarm(300);
    assert_fails(cmn_lock_take(at, "x") == -1, ".x.checkpoint-lock: No such file or directory");
    alarm(0);
    close(at);
}

TESTS(make_folder, remove_folder)
