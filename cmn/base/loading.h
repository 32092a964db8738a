/* What happens before the libraries of this program begin, which they do before main(). Where a limit
 * of the address space leaves no room for OpenBLAS's threads, the program starts itself again with
 * one thread; where there is no room for one, the job ends with a message.
 *
 * This works in programs alone, not in shared libraries: the Makefile asks for cmn_before_libraries
 * where it links bin/darknet. */
#ifndef CMN_LOADING_H
#define CMN_LOADING_H

/* A variable of the environment: set where OpenBLAS has been reduced to one thread. */
#define CMN_ONE_BLAS_THREAD "CMN_ONE_BLAS_THREAD"

#endif
