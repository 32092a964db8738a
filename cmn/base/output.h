/* The standard output and error of a rank: rank 0 speaks, the others are silent or write to files,
 * and a last word reaches people once. All local. */
#ifndef CMN_OUTPUT_H
#define CMN_OUTPUT_H

#include <stddef.h>

/* This process is `rank` of `size`. Sends the output of every rank but 0 to folder/rank-N.log, or nowhere
 * when folder is empty. May be called again when the folder becomes known. 0, or -1 with a reason. */
int cmn_output_open(int rank, int size, const char *folder);

/* Seconds that the speaker of a last word waits before it ends the job: other ranks of its host meet
 * the same error meanwhile, and find the word taken. Other nodes wait until the job should be over. */
enum { CMN_LAST_WORD_WAIT = 1, CMN_OTHER_NODES_WAIT = 4 };

/* Thread-safe. Writes `line` to the real standard error, unless another process of this host has
 * had the last word of this job: ranks that meet the same error, or its consequences, say nothing. Returns whether this
 * process has it. */
int cmn_output_last_word(const char *line, int node);

/* Thread-safe. Flushes stdout, unless another thread is in it or nobody takes what is there: does not wait for that. */
void cmn_output_flush(void);

/* Thread-safe. Writes to the real standard error of any rank, at once. */
void cmn_output_write(const char *text, size_t bytes);

#endif
