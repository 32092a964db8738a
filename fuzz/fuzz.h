/* What the fuzzed targets share. A target gets bytes, hands them to Darknet or to cmn as a file
 * or a command line, and returns; whatever else happens (a crash, a hang, what a sanitizer sees)
 * is a finding. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "config/commands.h"

struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t size);
    size_t longest; /* bytes that an input may have */
    size_t memory;  /* MiB that it may take where that is counted: more only makes it slow */
    const char *help;
};

/* All of them, and how many there are. */
extern const struct fuzz_target fuzz_targets[];
extern const int fuzz_target_count;

/* NULL when there is none of this name. */
const struct fuzz_target *fuzz_target_find(const char *name);

/* The status of a process in which a thread other than the main one has refused the input: none
 * that a sanitizer or Darknet ends with. */
enum { FUZZ_REFUSED = 41 };

/* Runs it on one input, to its end or to the first error that Darknet would end the program
 * with. Returns whether there was such an error. What the input took is given back: memory,
 * where fuzz_memory.h counts it, and open files. */
int fuzz_run(const struct fuzz_target *target, const uint8_t *data, size_t size);

/* ---- for targets ---- */

/* The name of a file that holds these bytes, until the input is done. `slot` is 0 to 3: so many
 * files an input can have. */
enum { FUZZ_FILES = 4 };
char *fuzz_file(int slot, const void *data, size_t size);

/* The name of an empty folder, until the input is done; what lies in it by then is removed. */
const char *fuzz_folder(void);
void fuzz_folder_end(void);

/* A thread that an input has started may run when the input is refused: waits until no more run
 * than is usual. */
void fuzz_threads_are_usual(void);
void fuzz_threads_end(void);

/* What is held now stays when an input ends: fuzz_memory.h. NULL where memory is not counted. */
void fuzz_memory_keep(void) __attribute__((weak));

/* The targets' functions, one file each or one file for those that are alike. */
void fuzz_cfg(const uint8_t *data, size_t size);
void fuzz_weights(const uint8_t *data, size_t size);
void fuzz_data(const uint8_t *data, size_t size);
void fuzz_lists(const uint8_t *data, size_t size);
void fuzz_paths(const uint8_t *data, size_t size);
void fuzz_image(const uint8_t *data, size_t size);
void fuzz_checkpoint(const uint8_t *data, size_t size);
void fuzz_resume(const uint8_t *data, size_t size);
void fuzz_heartbeat(const uint8_t *data, size_t size);
void fuzz_arguments(const uint8_t *data, size_t size);
void fuzz_training(const uint8_t *data, size_t size);

/* A training with one or a few of its parts changed, of `most` bytes at most, in place; its new
 * size. */
size_t fuzz_training_mutate(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Returns whether a training by this command, or any if it is NULL, refuses the cfg or the .data file
 * (or NULL). What is in them then is what Darknet would read. */
int fuzz_refused(const char *name, const char *data_name, const struct cmn_command *command);

#endif
