/* output: the standard output and error of a rank. All local.
 *
 * Rank 0 prints, and the other ranks are silent or write to files. A fatal message reaches people
 * once. */
#ifndef CMN_OUTPUT_H
#define CMN_OUTPUT_H

/* Declares this process to be `rank` of `size` ranks. Redirects the output of every rank except 0
 * to folder/rank-N.log, or to nowhere if `folder` is empty. Ends the job if it cannot open the
 * file. May be called again when the folder becomes known. */
void cmn_output_open(int rank, int size, const char *folder);

/* Seconds. A rank that has printed a fatal message waits up to CMN_FATAL_WAIT before it ends the
 * job; meanwhile other ranks of its host meet the same error, and find that it has been printed.
 * Other nodes wait CMN_OTHER_NODES_WAIT before they print, until the job should be over. */
enum { CMN_FATAL_WAIT = 1, CMN_OTHER_NODES_WAIT = 4 };

/* Thread-safe. Writes `line` to the job's standard error, unless another process of this job on
 * this host has written a fatal message: ranks that meet the same error, or its consequences, stay
 * silent. On nodes other than 0 it first blocks for CMN_OTHER_NODES_WAIT seconds. Returns whether
 * this process has written the line. */
int cmn_output_fatal(const char *line, int node);

/* Blocks, for at most CMN_FATAL_WAIT seconds, until every other rank has been told that this
 * process has written a fatal message, and will stay silent. Ranks of other hosts cannot be
 * told. */
void cmn_output_await_others(void);

/* Thread-safe, not blocking. Flushes stdout, unless another thread is using it or nobody reads
 * it. */
void cmn_output_flush(void);

/* Returns whether a person watches this process's standard output on a terminal. It looks at
 * mpiexec's standard output, because a rank's own is a pipe or a pseudo terminal of mpiexec. */
int cmn_output_watched(void);

#endif
