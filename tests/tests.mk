# The test programs, the stand-in for GPUs, and what runs them.

.PHONY: tests test test-quick test-on test-docs soak same-bits check-patches gpu-tests gpu-pack

UNIT_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/unit/*/*.c))
RANK_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/ranks/*/*.c))
HOST_TOOLS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/hosts/*.c))

# Those of the exchange over CUDA and NCCL themselves: in the pack for a machine with a GPU, which runs them.
REAL_TESTS :=
ifeq ($(GPU)-$(NCCL)-$(SUFFIX),1-1-)
REAL_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/gpu/transports/*.c tests/gpu/communicators/*.c) $(if $(filter 1,$(CUDNN)),tests/gpu/engine/gpu_convolution.c))
REAL_OBJ   := $(B)/tests/gpu/real/real.o
endif

TEST_OBJ    := $(addsuffix .o,$(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS) $(REAL_TESTS)) $(REAL_OBJ)

ifeq ($(TREE),alexeyab)
UNIT_TESTS := $(filter-out $(B)/tests/unit/engine/convolutional_layers,$(UNIT_TESTS))
# unit/darknet/: decoders, numbers, gradients and rules of the other tree, which its patches have repaired.
UNIT_TESTS := $(filter-out $(B)/tests/unit/darknet/%,$(UNIT_TESTS))
endif

# Without a GPU its code runs over a stand-in for CUDA and its libraries: all compiled once more, the kernels as C++ for the CPU.
FAKE_TESTS :=
ifneq ($(GPU),1)
FAKE_TESTS := $(if $(SUFFIX),,$(patsubst tests/%.c,$(B)/tests/%,$(filter-out tests/gpu/fake/% tests/gpu/real/%,$(wildcard tests/gpu/*/*.c))))
FAKE_DK    := $(DK_LIB_OBJ:$(B)/%=$(B)/fake/%)
FAKE_MAIN  := $(DK_EXEC_OBJ:$(B)/%=$(B)/fake/%)
FAKE_OWN   := $(patsubst %.c,$(B)/fake/%.o,$(CMN_SRC) $(wildcard tests/gpu/fake/*.c))
FAKE_OBJ   := $(FAKE_OWN) $(FAKE_TESTS:$(B)/%=$(B)/fake/%.o)
CMN_CU     := $(wildcard cmn/*/*.cu)
FAKE_CU    := $(DK_CUDA:%=$(B)/fake/darknet/src/%.cu.o) $(CMN_CU:%=$(B)/fake/%.o)
# Those that differ without cuDNN: a second program has them, and all else of the first.
FAKE_BARE  := $(addprefix $(B)/fake/without-cudnn/darknet/src/,$(addsuffix .o,batchnorm_layer connected_layer convolutional_layer crnn_layer network \
    $(if $(SUFFIX),maxpool_layer,deconvolutional_layer gru_layer lstm_layer rnn_layer)) convolutional_kernels.cu.o) \
    $(B)/fake/without-cudnn/cmn/engine/gpu_convolution.o
endif

# What the test and bench scripts are told. MPIEXEC is a command with arguments, DARKNET and BUILD are one path each.
# Make's own variables stay here: a script that starts make again means a make of its own.
TEST_ENV = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL DARKNET='$(CURDIR)/$(B)/bin/darknet' BUILD='$(CURDIR)/$(B)' \
    TREE='$(TREE)' ALEXEYAB_BUILD='$(addprefix $(CURDIR)/,$(ALEXEYAB_BUILD))' MPIEXEC='$(MPIEXEC)' NP='$(NP)' SAN='$(SAN)' CC='$(CC)' CMN_LIBS='$(LIB_LIBS) $(MPI_LIBS) -lm -pthread'

tests: $(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS) $(REAL_TESTS) $(FAKE_TESTS) $(if $(FAKE_TESTS),$(B)/fake/bin/darknet $(B)/fake/bin/darknet-without-cudnn) $(if $(SUFFIX),$(B)/bin/darknet $(B)/bin/cmn-run,build/unpatched/darknet build/cpu/canvases $(B)/sheet $(B)/replay $(if $(ALEXEYAB_BUILD),alexeyab)) ## Build the test programs alone

# Some tests of the command line run over both trees.
.PHONY: alexeyab alexeyab-programs
alexeyab: | deps-check
	$(Q)$(MAKE) --no-print-directory TREE=alexeyab SAN= GPU= CUDNN= CUDNN_HALF= NCCL= alexeyab-programs
alexeyab-programs: $(B)/bin/darknet $(B)/bin/cmn-run $(HOST_TOOLS) $(B)/fake/bin/darknet $(B)/fake/bin/darknet-without-cudnn

test: $(if $(TREE_OPT),,all) $(if $(filter 1,$(GPU)),$(REAL_TESTS),tests) ## Run every test, or ONLY='cli/faults unit/base' (TREE=alexeyab: over that tree; SAN=address,undefined or SAN=thread: instrumented)
	@$(MAKE) --no-print-directory $(if $(SUFFIX),TREE=pjreddie DARKNET_TREE=) mnist || echo 'MNIST could not be had: tests that need it fail (MNIST_DIR names idx files that are there)'
	@$(TEST_ENV) $(if $(filter 1,$(GPU)),tests/gpu/run.sh,tests/run.sh $(ONLY))

# One world, one file of the command line for each kind of command, and how the source is laid out.
QUICK = unit/ -3 cli/structure cli/batch_semantics cli/valid cli/epochs
test-quick: ## Run the tests that take two minutes: the units, the ranks on 3 of them, some of the command line
	@$(MAKE) --no-print-directory test ONLY='$(QUICK)'

test-on: ## Run the tests in another release of Debian: SUITE=trixie, RUN='make test' (as root; tests/on-suite.sh)
	@$(if $(SUITE),,echo "test-on: which release? for example: make test-on SUITE=trixie" >&2; exit 2)
	@! [ "$$(id -u)" = 0 ] || setup/install.sh install suite
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL tests/on-suite.sh '$(SUITE)' $(if $(RUN),bash -c "$(RUN)")

test-docs: all tests mnist ## Run every command of the documents that can run here, also those that take minutes (tests/docs.sh)
	@$(TEST_ENV) tests/docs.sh run
	@$(TEST_ENV) tests/docs.sh slow

gpu-tests: $(REAL_TESTS) $(if $(REAL_TESTS),,FORCE)
	@$(if $(REAL_TESTS),,echo 'gpu-tests: these tests belong to a build with GPU=1 NCCL=1' >&2; exit 2)

gpu-pack: mnist build/cpu/canvases | deps-check ## Pack build/gpu-pack for a machine with a GPU and nothing else (ARCH=90; tests/gpu/README.md)
	@$(MAKE) --no-print-directory GPU=1 CUDNN=1 NCCL=1 ARCH='$(or $(ARCH),90)' all gpu-tests
	$(if $(ALEXEYAB_TREE),@$(MAKE) --no-print-directory DARKNET_TREE='$(ALEXEYAB_TREE)' GPU=1 CUDNN=1 CUDNN_HALF=1 NCCL=1 ARCH='$(or $(ARCH),90)' all)
	@tests/gpu/pack.sh build/gpu-cudnn-nccl build/gpu-pack $(if $(ALEXEYAB_TREE),build/gpu-cudnn-half-nccl-alexeyab '$(ALEXEYAB_TREE)')

soak: all mnist ## Faults in trainings under cmn-run, RUNS=50: they must end with the bits of undisturbed ones
	@$(TEST_ENV) tests/soak.sh

same-bits: all mnist $(B)/fake/bin/darknet-without-cudnn ## Prove that no trained bit changed since REF=commit (SAME=fast, ONLY=names; tests/same-bits.sh)
	@$(TEST_ENV) REF='$(REF)' SAME='$(SAME)' ONLY='$(ONLY)' STAND_IN='$(CURDIR)/$(B)/fake/bin/darknet-without-cudnn' tests/same-bits.sh

check-patches: $(B)/bin/darknet ## Prove that the patches apply, build and change no result
	@$(TEST_ENV) PATCHES='$(PATCHES)' darknet/check-patches.sh

# Darknet without any patch, by its own Makefile: trainings are held against it (tests/cli/upstream.bats).
build/unpatched/darknet: darknet/UPSTREAM darknet/obtain.sh | deps-check
	$(say) MAKE $@
	$(Q)rm -rf build/unpatched
	$(Q)darknet/obtain.sh --pristine $(@D)
	$(Q)env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(MAKE) -s -j2 -C $(@D) CC='$(CC)' OPTS='-O2 -w' GPU=0 >$(@D)/build.log 2>&1 || \
	    { tail -n 20 $(@D)/build.log >&2; false; }
	$(Q)touch $@

$(TEST_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) $(if $(findstring /tests/gpu/,$@),-DREAL_GPU) $(if $(SUFFIX),-DNETWORKS_BY_VALUE) -Itests -MD -MP -c -o $@ $<

$(B)/tests/gpu/real/late.o: tests/gpu/real/late.cu $(B)/flags-cuda
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(CMN_CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(REAL_TESTS): $(B)/tests/%: $(B)/tests/%.o $(REAL_OBJ) $(B)/tests/gpu/real/late.o $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	$(Q)$(LINK) $@ $(filter %.o,$^) -Wl,--wrap=cudaStreamWaitEvent $(LIBS) $(call flags,link cmocka)

$(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS): $(B)/tests/%: $(B)/tests/%.o $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	$(Q)$(LINK) $@ $(filter %.o,$^) $(LIBS) $(call flags,link cmocka $(if $(findstring engine/convolution,$@),$(if $(USES_ONEDNN),,libdnnl gomp)))

# Darknet's files, too, are compiled anew where a header of the stand-in has changed: -MD, not -MMD.
FAKE_FLAGS = -MD -MP -UONEDNN -DGPU -DCUDNN $(if $(SUFFIX),-DCUDNN_HALF) -DCMN_NCCL -isystem tests/gpu/fake -isystem tests/gpu/fake/$(TREE)
$(eval $(call flags_file,fake,$$(FAKE_FLAGS)))
$(FAKE_OBJ): $(B)/fake/%.o: %.c $(B)/flags-cmn $(B)/flags-fake | $(DK)/.stamp
	$(say) CC '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) $(FAKE_FLAGS) -Itests -c -o $@ $<

$(DK_CPP:%=$(B)/fake/darknet/src/%.o): $(B)/fake/darknet/%.o: $(DK)/%.cpp $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(say) CXX '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++11 $(filter-out $(DK_OWN) -Wno-incompatible-pointer-types,$(DK_FLAGS)) $(FAKE_FLAGS) -c -o $@ $<

$(filter-out $(DK_CPP:%=$(B)/fake/darknet/src/%.o),$(FAKE_DK) $(FAKE_MAIN)): $(B)/fake/darknet/%.o: $(DK)/%.c $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(say) CC '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(DK_FLAGS) $(FAKE_FLAGS) -c -o $@ $<

$(B)/fake/without-cudnn/cmn/engine/gpu_convolution.o: cmn/engine/gpu_convolution.c $(B)/flags-cmn $(B)/flags-fake | $(DK)/.stamp
	$(say) CC '$< (stand-in, without cuDNN)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) $(FAKE_FLAGS) -UCUDNN -c -o $@ $<

$(filter $(B)/fake/without-cudnn/darknet/src/%.o,$(filter-out %.cu.o,$(FAKE_BARE))): $(B)/fake/without-cudnn/darknet/%.o: $(DK)/%.c $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(say) CC '$< (stand-in, without cuDNN)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(DK_FLAGS) $(FAKE_FLAGS) -include tests/gpu/fake/without_cudnn.h -c -o $@ $<

# `kernel<<<grid, block>>>(arguments)`, on one line or more, is C++ then (tests/gpu/fake/kernel.h). Some kernels of shortcuts
# read addresses from the GPU's memory.
FAKE_SED = 's,^ *//.*<<<.*,,;:a;s/([A-Za-z_0-9]+) *<<<(.*)>>>/FAKE_LAUNCH(\1, \2)/;/<<<[^>]*$$/{N;ba};s/layers_(output|delta)_gpu\[[0i]\]/fake_pointer(&)/'
define fake_kernels
	$(say) CXX '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)sed -E $(FAKE_SED) $< >$(@:.o=.cpp)
	$(Q)$(CXX) -std=c++17 $(filter-out $(DK_OWN) -Wno-incompatible-pointer-types,$(DK_FLAGS)) $(FAKE_FLAGS) -Itests/gpu/fake -include kernel.h $(1) $(if $(SUFFIX),-fpermissive) -MT $@ -c -o $@ $(@:.o=.cpp)
endef
$(DK_CUDA:%=$(B)/fake/darknet/src/%.cu.o): $(B)/fake/darknet/%.cu.o: $(DK)/%.cu $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(fake_kernels)

$(filter %.cu.o,$(FAKE_BARE)): $(B)/fake/without-cudnn/darknet/%.cu.o: $(DK)/%.cu $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(call fake_kernels,-include without_cudnn.h)

$(CMN_CU:%=$(B)/fake/%.o): $(B)/fake/%.o: % $(B)/flags-darknet $(B)/flags-fake | $(DK)/.stamp
	$(fake_kernels)

$(B)/fake/cmn/report/tensorboard.o: | $(EVENTS).h

FAKE_LINK = $(LINK) $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
    $(LIB_LIBS) $(MPI_LIBS) $(DK_LIBS) -lstdc++ -lm -pthread
$(B)/fake/libfake.a: $(FAKE_DK) $(FAKE_CU) $(FAKE_OWN) $(EVENTS).o
	$(say) AR $@
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/fake/bin/darknet: $(FAKE_MAIN) $(filter $(B)/fake/tests/gpu/fake/%,$(FAKE_OWN)) $(B)/fake/libfake.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(FAKE_LINK)

$(B)/fake/bin/darknet-without-cudnn: $(FAKE_MAIN) $(FAKE_BARE) $(filter $(B)/fake/tests/gpu/fake/%,$(FAKE_OWN)) $(B)/fake/libfake.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(FAKE_LINK)

$(FAKE_TESTS): $(B)/tests/%: $(B)/fake/tests/%.o $(B)/fake/libfake.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(FAKE_LINK) $(call flags,link cmocka)
