/* A loader thread among signals. What it takes from the sampler: sampler.c, and the tests in
 * tests/ranks/data. */
#include "folder.h"

#include <fcntl.h>
#include <pthread.h>

#include "base/stop_request.h"
#include "data/loader.h"

static const char *fifo;

/* As Darknet reads a label file. */
static void *read_labels(void *line)
{
    FILE *file;

    cmn_loader_begin(0);
    file = fopen(fifo, "r");
    if (!file || !fgets(line, 64, file)) {
        strcpy(line, "cut off");
    }
    if (file) {
        fclose(file);
    }
    return NULL;
}

TEST(stop_request_cuts_off_no_label_file)
{
    char line[64] = "";
    pthread_t thread;
    int to;

    fifo = in_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    cmn_stop_catch();
    pthread_create(&thread, NULL, read_labels, line);
    to = open(fifo, O_WRONLY); /* the thread has begun to read */
    for (int i = 0; i < 20; i++) {
        pthread_kill(thread, SIGUSR1);
        usleep(2000);
    }
    assert_int_equal(write(to, "0 .5 .5 1 1\n", 12), 12);
    close(to);
    pthread_join(thread, NULL);
    assert_string_equal(line, "0 .5 .5 1 1\n");
    assert_int_equal(cmn_stop_requested(), 0);
    raise(SIGUSR1);
    assert_int_equal(cmn_stop_requested(), SIGTERM);
    assert_false(cmn_stop_is_of_host());
    raise(SIGTERM);
    raise(SIGUSR1); /* cmn-run asks again, and the host is still to be left */
    assert_true(cmn_stop_is_of_host());
}

TESTS(make_folder, remove_folder)
