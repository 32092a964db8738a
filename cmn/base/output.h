/* The standard output and error of a rank: rank 0 prints, the others are silent or write to files,
 * and a fatal message reaches people once. All local. */
#ifndef CMN_OUTPUT_H
#define CMN_OUTPUT_H

/* This process is `rank` of `size`. Sends the output of every rank but 0 to folder/rank-N.log, or
 * nowhere when folder is empty. May be called again when the folder becomes known. */
void cmn_output_open(int rank, int size, const char *folder);

/* Seconds that the rank which has printed a fatal message waits at most before it ends the job:
 * other ranks of its host meet the same error meanwhile, and find that it has been printed. Other
 * nodes wait until the job should be over. */
enum { CMN_FATAL_WAIT = 1, CMN_OTHER_NODES_WAIT = 4 };

/* Thread-safe. Writes `line` to the job's standard error, unless another process of this job on
 * this host has written a fatal message: ranks that meet the same error, or its consequences, stay
 * silent. Returns whether this process has written it. */
int cmn_output_fatal(const char *line, int node);

/* Blocking, at most CMN_FATAL_WAIT seconds, after this process has written one: until every other
 * rank has been told, and will stay silent. Ranks of other hosts cannot be told. */
void cmn_output_await_others(void);

/* Thread-safe. Flushes stdout, unless another thread is in it or nobody takes what is there: does
 * not wait for that. */
void cmn_output_flush(void);

/* Whether a person watches this process's standard output on a terminal. A rank's own standard
 * output is a pipe or a pseudo terminal of mpiexec, so mpiexec's is looked at. */
int cmn_output_watched(void);

#endif
