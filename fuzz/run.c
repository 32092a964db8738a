#include "fuzz.h"

#include "base/fatal.h"

#include <dirent.h>
#include <err.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct fuzz_target fuzz_targets[] = {
    {"cfg", fuzz_cfg, 4096, 16,
     "a cfg file: the network is made, and trained for a step when it is small"},
    {"weights", fuzz_weights, 16384, 16,
     "a weights file for one of some networks with all kinds of layers"},
    {"data", fuzz_data, 4096, 16, "a .data file, and the labels that it names"},
    {"lists", fuzz_lists, 16384, 16,
     "lists, labels, boxes, masks, tags, trees, maps, texts, CIFAR-10"},
    {"paths", fuzz_paths, 16384, 16,
     "names of images, and of the files beside them that they lead to"},
    {"image", fuzz_image, 16384, 2, "an image file"},
    {"checkpoint", fuzz_checkpoint, 16384, 16, "a checkpoint, and all of its tensors"},
    {"resume", fuzz_resume, 512, 64,
     "a training that resumes from a checkpoint whose values are wrong and whose checksums are "
     "not"},
    {"heartbeat", fuzz_heartbeat, 16384, 16, "what a watchdog receives"},
    {"arguments", fuzz_arguments, 4096, 16, "a command line, and cmn_ keys of a cfg"},
    {"training", fuzz_training, 8192, 64,
     "a training of two steps: command line, cfg, data file, list, labels"},
};

const int fuzz_target_count = sizeof fuzz_targets / sizeof fuzz_targets[0];

const struct fuzz_target *fuzz_target_find(const char *name)
{
    for (int i = 0; i < fuzz_target_count; i++) {
        if (!strcmp(fuzz_targets[i].name, name)) {
            return &fuzz_targets[i];
        }
    }
    return NULL;
}

static sigjmp_buf ended;
static pthread_t main_thread;

/* Darknet's fatal() and the module's end here, and would then end the program. */
static void refused(const char *message, int lost)
{
    (void)lost;
    fprintf(stderr, "refused: %s\n", message);
    if (!pthread_equal(pthread_self(), main_thread)) {
        _exit(FUZZ_REFUSED); /* only where an input has a process of its own */
    }
    siglongjmp(ended, 1);
}

int fuzz_run(const struct fuzz_target *target, const uint8_t *data, size_t size)
{
    volatile int taken = 0; /* longjmp keeps it */

    main_thread = pthread_self();
    cmn_fatal_handler(refused);
    if (size <= target->longest && !sigsetjmp(ended, 0)) {
        target->run(data, size);
        taken = 1;
    }
    if (!taken) {
        fuzz_threads_end();
    }
    fuzz_folder_end();
    return !taken;
}

static int threads_at_first;

static int threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    while (dir && readdir(dir)) {
        n++;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

void fuzz_threads_are_usual(void)
{
    threads_at_first = threads();
}

void fuzz_threads_end(void)
{
    for (int i = 0; threads_at_first && threads() > threads_at_first && i < 5000; i++) {
        usleep(1000);
    }
}

static char folder[64];

const char *fuzz_folder(void)
{
    fuzz_folder_end();
    snprintf(folder, sizeof folder, ".fuzz-XXXXXX");
    if (!mkdtemp(folder)) {
        err(1, "a folder for the input");
    }
    return folder;
}

void fuzz_folder_end(void)
{
    DIR *dir = folder[0] ? opendir(folder) : NULL;
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
        rmdir(folder);
    }
    folder[0] = '\0';
}

/* Files without names, one for each slot, used again and again. */
char *fuzz_file(int slot, const void *data, size_t size)
{
    static int fd[FUZZ_FILES] = {-1, -1, -1, -1};
    static char name[FUZZ_FILES][32];

    if (fd[slot] < 0) {
        fd[slot] = memfd_create("fuzz", 0);
        snprintf(name[slot], sizeof name[slot], "/dev/fd/%d", fd[slot]);
    }
    if (fd[slot] < 0 || ftruncate(fd[slot], 0) ||
        pwrite(fd[slot], data, size, 0) != (ssize_t)size) {
        err(1, "a file for the input");
    }
    return name[slot];
}
