/* Before all else in the files of Darknet that differ without cuDNN: its structures keep the fields
 * for cuDNN, so that all other files are those of the program that has it. */
#if __has_include(<dark_cuda.h>) /* AlexeyAB's headers know C++ */
#include <convolutional_layer.h>
#else
#ifdef __cplusplus
extern "C" {
#endif
#include <darknet.h>
#ifdef __cplusplus
}
#endif
#endif
#undef CUDNN
