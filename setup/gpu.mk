# GPU=1 makes a build of its own (docs/use/gpu.md). Every build includes this file; the others ignore it.

CUDA_OBJ    :=
ifeq ($(GPU),1)
DK_CUDA_OBJ := $(DK_CUDA:%=$(B)/darknet/src/%.o)
CMN_CUDA_OBJ := $(patsubst %.cu,$(B)/%.o,$(wildcard cmn/*/*.cu))
CUDA_OBJ    := $(DK_CUDA_OBJ) $(CMN_CUDA_OBJ)
GPU_FLAGS   := -DGPU $(if $(filter 1,$(CUDNN)),-DCUDNN) $(if $(filter 1,$(CUDNN_HALF)),-DCUDNN_HALF) $(if $(filter 1,$(NCCL)),-DCMN_NCCL)

# setup/cuda.sh writes this file; the first line says for which settings.
cuda_key := $(strip NVCC=$(NVCC) CUDA_HOME=$(CUDA_HOME) ARCH=$(ARCH) CUDNN=$(CUDNN) NCCL=$(NCCL) CC=$(CC))
ifneq ($(shell head -n 1 $(B)/cuda.mk 2>/dev/null),\# $(cuda_key))
$(shell rm -f $(B)/cuda.mk)
endif
ifneq ($(filter-out clean distclean help uninstall,$(or $(MAKECMDGOALS),all)),)
include $(B)/cuda.mk
endif
endif

# These are the flags of nvcc, and of the compiler below it. The module's kernel sees no header of Darknet.
CUDA_FLAGS = $(CUDA_ARCH) -O2 -Xcompiler -Wall,-fPIC
DK_CUDA_FLAGS  = $(CUDA_FLAGS) $(GPU_FLAGS) $(if $(SUFFIX),-w) $(DK_INCLUDE) -Icmn
CMN_CUDA_FLAGS = $(CUDA_FLAGS) -Xcompiler -Wextra -Icmn

ifeq ($(GPU),1)
$(B)/cuda.mk: setup/cuda.sh | deps-check
	$(say) CUDA $@
	$(Q)KEY='$(cuda_key)' CC='$(CC)' NVCC='$(NVCC)' CUDA_HOME='$(CUDA_HOME)' ARCH='$(ARCH)' CUDNN='$(CUDNN)' NCCL='$(NCCL)' $< $@

$(DK_CUDA_OBJ): $(B)/darknet/%.o: $(DK)/%.cu $(B)/flags-cuda | $(DK)/.stamp
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(DK_CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(CMN_CUDA_OBJ): $(B)/%.o: %.cu $(B)/flags-cuda
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(CMN_CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
endif
