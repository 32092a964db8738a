/* Before all else in the files of Darknet that differ without cuDNN: its structures keep the fields
 * for cuDNN, so that all other files are those of the program that has it. */
#ifdef __cplusplus
extern "C" {
#endif
#include <darknet.h>
#ifdef __cplusplus
}
#endif
#undef CUDNN
#undef CUDNN_HALF
