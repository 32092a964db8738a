/* Makes the line that starts the ranks: what cmn-run chooses for mpiexec, what -mpi says, the
 * machines and the command. All local. */
#ifndef CMN_RUN_MPIEXEC_H
#define CMN_RUN_MPIEXEC_H

#include "options.h"

/* Returns the number of processor cores that this process may use; the hardware threads of a core
 * count as one. */
int cmn_mpiexec_cores(void);

/* Returns whether all ranks run on this machine: no option names others, and no batch system has
 * given them. */
int cmn_mpiexec_is_here(const struct cmn_run_options *o);

/* Returns "mpiexec" with its options, the machines ("" for none), the number of ranks (0: as many
 * as mpiexec finds) and the command, NULL behind the last. A word of -mpi wins over each choice.
 * The list is valid until the next call, and as long as the caller's words. */
char **cmn_mpiexec_words(const struct cmn_run_options *o, char *hosts, int ranks,
                         char *const *command);

/* Returns the words as a shell takes them. The caller frees the text. */
char *cmn_mpiexec_text(char *const *word);

#endif
