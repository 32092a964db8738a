# Darknet's source: which files are compiled, and how the tree under build/ is obtained, verified and patched.

ifeq ($(TREE),pjreddie)
# Upstream's own list for a CPU build without OpenCV; image_opencv.cpp compiles to nothing there.
DK_LIB := gemm utils cuda deconvolutional_layer convolutional_layer list image activations im2col col2im blas \
    crop_layer dropout_layer maxpool_layer softmax_layer data matrix network connected_layer cost_layer parser \
    option_list detection_layer route_layer upsample_layer box normalization_layer avgpool_layer layer local_layer \
    shortcut_layer logistic_layer activation_layer rnn_layer gru_layer crnn_layer demo batchnorm_layer region_layer \
    reorg_layer tree lstm_layer l2norm_layer yolo_layer iseg_layer
DK_EXEC := captcha lsd super art tag cifar go rnn segmenter regressor classifier coco yolo detector nightmare \
    instance-segmenter darknet

DK_EXEC_IN := examples

DK_CUDA := convolutional_kernels deconvolutional_kernels activation_kernels im2col_kernels col2im_kernels blas_kernels \
    crop_layer_kernels dropout_layer_kernels maxpool_layer_kernels avgpool_layer_kernels

else
# As its Makefile has them. AVX=1: its own instructions, as there. GEMM=own: its own matrix products, and not OpenBLAS.
DK_LIB := gemm utils dark_cuda convolutional_layer list image activations im2col col2im blas crop_layer dropout_layer \
    maxpool_layer softmax_layer data matrix network connected_layer cost_layer parser option_list detection_layer \
    route_layer box normalization_layer avgpool_layer layer local_layer shortcut_layer representation_layer \
    activation_layer rnn_layer gru_layer crnn_layer demo batchnorm_layer region_layer reorg_layer reorg_old_layer tree \
    yolo_layer gaussian_yolo_layer upsample_layer lstm_layer conv_lstm_layer scale_channels_layer sam_layer
DK_EXEC := darknet captcha writing nightmare coco dice yolo detector compare classifier swag rnn rnn_vid tag cifar go art \
    super voxel
DK_EXEC_IN := src
DK_CPP  := image_opencv http_stream
DK_CUDA := convolutional_kernels activation_kernels im2col_kernels col2im_kernels blas_kernels crop_layer_kernels \
    dropout_layer_kernels maxpool_layer_kernels network_kernels avgpool_layer_kernels
DK_OWN_INCLUDE := -I$(DK)/3rdparty/stb/include
# GCC 14 refuses float ** for void **, which cudaHostAlloc's callers there give it.
DK_OWN_FLAGS = -w -Wno-incompatible-pointer-types $(if $(filter 1,$(AVX)),-ffp-contract=fast -mavx -mavx2 -msse3 -msse4.1 -msse4.2 -msse4a) \
    $(if $(filter 1,$(OPENCV)),-DOPENCV $(call flags,compile opencv4))
DK_LIBS  = -lstdc++ $(if $(filter 1,$(OPENCV)),$(call flags,link opencv4))
endif

PATCHES := patches/$(TREE)
SERIES  := $(wildcard $(PATCHES)/series $(PATCHES)/*/*.patch)
# The list makes the source follow the removal of a patch, too.
build/patches$(SUFFIX).list: FORCE
	@mkdir -p $(@D)
	@echo '$(sort $(SERIES))' | cmp -s - $@ || echo '$(sort $(SERIES))' >$@

$(DK)/.stamp: darknet/UPSTREAM darknet/obtain.sh build/patches$(SUFFIX).list $(wildcard darknet/MANIFEST) $(SERIES) | deps-check
	$(say) GET $(DK)
	$(Q)rm -rf $(DK).last; if [ -d $(DK) ]; then cp -a $(DK) $(DK).last; fi
	$(Q)darknet/obtain.sh --patches $(PATCHES) $(DK)
	$(Q)if [ -d $(DK).last ]; then cd $(DK) && find src include $(filter-out src,$(DK_EXEC_IN)) -type f -exec sh -c \
	    'cmp -s "$$1" "../$(notdir $(DK)).last/$$1" && touch -r "../$(notdir $(DK)).last/$$1" "$$1"' - {} \; ; fi
	$(Q)rm -rf $(DK).last && touch $@

# Each file's own time decides, not the stamp's: unpacking keeps the time that upstream gave a file, and the recipe
# above the time of a patched file that came out as before, so a changed patch recompiles only what it changed.
# One rule a pattern: with several targets in one, GNU Make 4.4 expects the recipe to update them all.
$(foreach p,src/%.c src/%.cpp src/%.cu src/%.h include/%.h examples/%.c,$(eval $(DK)/$(p): $(DK)/.stamp ;))
