/* Runs a target on files, without a fuzzer and on the build that people use:
 *
 *     replay              prints the targets
 *     replay TARGET FILE...
 *
 * Each file has a process of its own, with bounded memory and time. Status 1 when one of them
 * crashed, and its line says how. */
#include <err.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

enum { SECONDS = 20, MIB = 2048 };

/* No status that a sanitizer or Darknet ends with. */
enum { TAKEN = 40, REFUSED = FUZZ_REFUSED };

/* Where a target writes its files. */
static char folder[] = "/tmp/fuzz-XXXXXX";

static int remove_one(const char *name, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(name);
}

static int run_file(const struct fuzz_target *target, const char *name)
{
    struct rlimit memory = {(rlim_t)MIB << 20, (rlim_t)MIB << 20};
    FILE *file = fopen(name, "rb");
    uint8_t *data = malloc(target->longest + 1);
    size_t size;

    if (!file || !data) {
        err(2, "%s", name);
    }
    size = fread(data, 1, target->longest + 1, file);
    fclose(file);
    if (chdir(folder)) {
        err(2, "%s", folder);
    }
    alarm(SECONDS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    setrlimit(RLIMIT_AS, &memory);
#endif
    (void)memory;
    return fuzz_run(target, data, size);
}

/* Whether it was taken (0), refused (1), or crashed (2). */
static int try_file(const struct fuzz_target *target, const char *name)
{
    int status;
    pid_t child = fork();

    if (child < 0) {
        err(2, "fork");
    }
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) ||
            (!getenv("FUZZ_LOUD") && !freopen("/dev/null", "w", stderr))) {
            _exit(3);
        }
        _exit(run_file(target, name) ? REFUSED : TAKEN);
    }
    if (waitpid(child, &status, 0) != child) {
        err(2, "waitpid");
    }
    if (WIFEXITED(status) && (WEXITSTATUS(status) == TAKEN || WEXITSTATUS(status) == REFUSED)) {
        return WEXITSTATUS(status) == REFUSED;
    }
    if (WIFSIGNALED(status)) {
        printf("%s: %s: %s\n", target->name, name, strsignal(WTERMSIG(status)));
    } else {
        printf("%s: %s: ended with status %d\n", target->name, name, WEXITSTATUS(status));
    }
    return 2;
}

int main(int argc, char **argv)
{
    const struct fuzz_target *target;
    int count[3] = {0, 0, 0};

    if (argc < 2) {
        for (int i = 0; i < fuzz_target_count; i++) {
            printf("%-10s %s\n", fuzz_targets[i].name, fuzz_targets[i].help);
        }
        return 0;
    }
    target = fuzz_target_find(argv[1]);
    if (!target) {
        errx(2, "%s: no such target", argv[1]);
    }
    if (!mkdtemp(folder)) {
        err(2, "%s", folder);
    }
    for (int i = 2; i < argc; i++) {
        count[try_file(target, argv[i])]++;
        fflush(stdout);
    }
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    printf("%s: %d taken, %d refused, %d crashed\n", target->name, count[0], count[1], count[2]);
    return count[2] ? 1 : 0;
}
