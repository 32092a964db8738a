# darknet-cmn: everything a person runs. `make help` lists it.
#
# Knobs: V=1 (show commands), SAN=address,undefined or SAN=thread (instrumented build of its own), DARKNET_TREE=dir (an existing
# Darknet source tree), MNIST_DIR=dir (idx files already there), NP=ranks, PREFIX, DESTDIR, CC, MPICC, MPIEXEC, CFLAGS,
# LDFLAGS.
# GPU=1 (bin/darknet-gpu, a build of its own; docs/gpu.md), and with it CUDNN=1, NCCL=1, ARCH=80,90, CUDA_HOME=dir or NVCC=program.

VERSION := 0.1.0

ifeq ($(origin CC),default)
CC := gcc
endif
MPICC   ?= mpicc
PREFIX  ?= /usr/local
DESTDIR ?=
NP      ?= 2
SAN     ?=

AS_ROOT := $(filter 0,$(shell id -u))
MPIEXEC ?= mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1$(if $(AS_ROOT), --allow-run-as-root)

# After Ctrl-C mpiexec waits this many seconds before SIGTERM, which makes the ranks stop and save, and as many again
# before SIGKILL. Long enough for a step and a weights file, and no longer: the first wait does nothing.
OMPI_MCA_odls_base_sigkill_timeout ?= 3
export OMPI_MCA_odls_base_sigkill_timeout
export DARKNET_TREE MNIST_DIR

# Parallel unless the caller says otherwise. `make clean all` stays serial: its goals depend on their order.
ifeq ($(filter clean distclean,$(MAKECMDGOALS)),)
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
else
.NOTPARALLEL:
endif

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-5s %s\n'
endif

# ---- What is compiled, where, and how ------------------------------------------------------------------------

comma := ,
ifneq ($(filter 1,$(CUDNN) $(NCCL)),)
ifneq ($(GPU),1)
$(error CUDNN=1 and NCCL=1 belong to a GPU build: add GPU=1)
endif
endif
ifeq ($(GPU),1)
ifneq ($(SAN),)
$(error GPU=1 and SAN=$(SAN) do not go together: the sanitizers know nothing of the GPU's memory)
endif
endif
VARIANT := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),$(if $(filter 1,$(GPU)),gpu$(if $(filter \
    1,$(CUDNN)),-cudnn)$(if $(filter 1,$(NCCL)),-nccl),cpu))
B  := build/$(VARIANT)
DK := build/darknet

# Upstream's own list for a CPU build without OpenCV; image_opencv.cpp compiles to nothing there.
DK_LIB := gemm utils cuda deconvolutional_layer convolutional_layer list image activations im2col col2im blas \
    crop_layer dropout_layer maxpool_layer softmax_layer data matrix network connected_layer cost_layer parser \
    option_list detection_layer route_layer upsample_layer box normalization_layer avgpool_layer layer local_layer \
    shortcut_layer logistic_layer activation_layer rnn_layer gru_layer crnn_layer demo batchnorm_layer region_layer \
    reorg_layer tree lstm_layer l2norm_layer yolo_layer iseg_layer
DK_EXEC := captcha lsd super art tag cifar go rnn segmenter regressor classifier coco yolo detector nightmare \
    instance-segmenter darknet

DK_CUDA := convolutional_kernels deconvolutional_kernels activation_kernels im2col_kernels col2im_kernels blas_kernels \
    crop_layer_kernels dropout_layer_kernels maxpool_layer_kernels avgpool_layer_kernels

CMN_SRC    := $(shell find cmn -name '*.c' 2>/dev/null | LC_ALL=C sort)
RUN_SRC    := $(wildcard run/*.c)
UNIT_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/unit/*/*.c))
RANK_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/ranks/*/*.c))
HOST_TOOLS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/hosts/*.c))

DK_LIB_OBJ  := $(DK_LIB:%=$(B)/darknet/src/%.o)
DK_EXEC_OBJ := $(DK_EXEC:%=$(B)/darknet/examples/%.o)
CMN_OBJ     := $(CMN_SRC:%.c=$(B)/%.o)
RUN_OBJ     := $(RUN_SRC:%.c=$(B)/%.o)
CUDA_OBJ    :=
ifeq ($(GPU),1)
DK_CUDA_OBJ := $(DK_CUDA:%=$(B)/darknet/src/%.o)
CUDA_OBJ    := $(DK_CUDA_OBJ) $(B)/cmn/mpi/kernels.o
GPU_FLAGS   := -DGPU $(if $(filter 1,$(CUDNN)),-DCUDNN) $(if $(filter 1,$(NCCL)),-DCMN_NCCL)

# What setup/cuda.sh has found. The first line of the file says for which settings.
cuda_key := $(strip NVCC=$(NVCC) CUDA_HOME=$(CUDA_HOME) ARCH=$(ARCH) CUDNN=$(CUDNN) NCCL=$(NCCL) CC=$(CC))
ifneq ($(shell head -n 1 $(B)/cuda.mk 2>/dev/null),\# $(cuda_key))
$(shell rm -f $(B)/cuda.mk)
endif
ifneq ($(filter-out clean distclean help uninstall,$(or $(MAKECMDGOALS),all)),)
include $(B)/cuda.mk
endif
endif
TEST_OBJ    := $(addsuffix .o,$(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS))

# Without a GPU its code runs over a stand-in for CUDA, its libraries and Darknet's kernels: all compiled once more.
FAKE_TESTS :=
ifneq ($(GPU),1)
FAKE_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(filter-out tests/gpu/fake/%,$(wildcard tests/gpu/*/*.c)))
FAKE_DK    := $(DK_LIB_OBJ:$(B)/%=$(B)/fake/%)
FAKE_MAIN  := $(DK_EXEC_OBJ:$(B)/%=$(B)/fake/%)
FAKE_OWN   := $(patsubst %.c,$(B)/fake/%.o,$(CMN_SRC) $(wildcard tests/gpu/fake/*.c))
FAKE_OBJ   := $(FAKE_OWN) $(FAKE_TESTS:$(B)/%=$(B)/fake/%.o)
endif

ifeq ($(SAN),)
DK_OPT  := -Ofast
CMN_OPT := -O2 -g
else
# Halting on the first finding is what makes a test fail on it.
DK_OPT  := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all
CMN_OPT := $(DK_OPT)
# Two runtimes that are not linked into the program do not know of each other, and one of them keeps no report.
SAN_LINK := $(if $(findstring clang,$(CC)),,$(if $(findstring address,$(SAN)),-static-libasan) $(if $(findstring undefined,$(SAN)),-static-libubsan))
# Open MPI and Darknet both leave memory to the end of the process.
ASAN_OPTIONS ?= detect_leaks=0
UBSAN_OPTIONS ?= print_stacktrace=1
# The libraries are not instrumented; the file says what is left out, and why. A job that is ended early leaves its loader threads.
TSAN_OPTIONS ?= report_thread_leaks=0 second_deadlock_stack=1 suppressions='$(CURDIR)/tests/tsan.supp'
export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
endif

# mpicc may be installed only by this very run of make, so it is asked when a recipe first needs it, and once.
MPI_CFLAGS = $(eval MPI_CFLAGS := $$(patsubst -I%,-isystem %,$$(shell $(MPICC) --showme:compile)))$(MPI_CFLAGS)
MPI_LIBS   = $(eval MPI_LIBS := $$(shell $(MPICC) --showme:link))$(MPI_LIBS)

DK_INCLUDE = -I$(DK)/include -I$(DK)/src
DK_FLAGS   = -Wall -Wno-unused-result -Wno-unknown-pragmas -Wno-stringop-truncation -fPIC $(DK_OPT) -DCBLAS $(GPU_FLAGS) $(DK_INCLUDE) -Icmn \
    $(CUDA_CFLAGS) $(CFLAGS)
RUN_FLAGS  = -std=c11 -D_GNU_SOURCE $(CMN_WARN) $(CMN_OPT) $(CFLAGS)
CMN_WARN   = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CMN_FLAGS  = -std=c11 -D_GNU_SOURCE -DDARKNET_KEEP_MALLOC -DCMN_VERSION='"$(VERSION)"' $(CMN_WARN) -fPIC $(CMN_OPT) \
    $(GPU_FLAGS) -Icmn $(DK_INCLUDE:-I%=-isystem %) $(CUDA_CFLAGS) $(MPI_CFLAGS) $(CFLAGS)
# Both halves of nvcc: its own, and the compiler's below it. The module's kernel sees no header of Darknet.
CUDA_FLAGS = $(CUDA_ARCH) -O2 -Xcompiler -Wall,-fPIC
DK_CUDA_FLAGS  = $(CUDA_FLAGS) $(GPU_FLAGS) $(DK_INCLUDE) -Icmn
CMN_CUDA_FLAGS = $(CUDA_FLAGS) -Xcompiler -Wextra -Icmn

# The two libraries call each other. -Ofast stays on the link line because upstream has it there too: it selects
# the start-up code that flushes denormals to zero, and results should be upstream's.
LINK = $(CC) $(DK_OPT) $(SAN_LINK) $(CFLAGS) $(NAMES) $(LDFLAGS) -o
# For the stacks that the watchdog prints. Not all names: some of Darknet's, such as `error`, are also those of libraries.
NAMES = $(addprefix -Wl$(comma)--export-dynamic-symbol=,main 'cmn_*' 'forward_*' 'backward_*' 'update_*' 'train_*' 'validate_*' \
    'run_*' 'load_*' 'save_*' 'read_*' 'parse_*' 'gemm*' 'im2col_*' 'col2im_*')
LIBS = -Wl,--start-group $(B)/libcmn.a $(B)/libdarknet.a -Wl,--end-group -lopenblas -lcjson -lxxhash $(MPI_LIBS) \
    $(CUDA_LIBS) -lm -pthread

# ---- Targets -------------------------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all darknet-source mnist demo detection demo-detection test soak same-bits check-patches bench bench-link bench-slow-link bench-accuracy bench-large-batch bench-batch-norm bench-timeline bench-reliability install uninstall clean \
    distclean help tests FORCE setup

all: $(if $(SAN),$(B)/bin/darknet $(B)/bin/cmn-run,$(if $(filter 1,$(GPU)),bin/darknet-gpu,bin/darknet) bin/cmn-run) ## Build bin/darknet (the default)

darknet-source: $(DK)/.stamp ## Obtain, verify and patch Darknet's source into build/darknet

mnist: data/mnist/.source ## Fetch and prepare MNIST in data/mnist (MNIST_DIR=dir uses idx files already there)

demo: all mnist ## Train MNIST on NP=2 ranks; weights, log and chart go to results/mnist
	@DARKNET='$(B)/bin/darknet' MPIEXEC='$(MPIEXEC)' NP='$(NP)' examples/mnist/demo.sh

detection: data/detection/.source ## Draw MNIST's digits on larger canvases, for detectors, in data/detection

demo-detection: all detection $(B)/sheet ## Train a detector on NP=2 ranks; weights, log, chart and picture go to results/detection
	@DARKNET='$(B)/bin/darknet' SHEET='$(B)/sheet' LETTERS='$(DK)/data/labels' MPIEXEC='$(MPIEXEC)' NP='$(NP)' examples/detection/demo.sh

tests: $(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS) $(FAKE_TESTS) $(if $(FAKE_TESTS),$(B)/fake/bin/darknet) build/cpu/canvases $(B)/sheet $(B)/replay ## Build the test programs alone

test: all $(if $(filter 1,$(GPU)),,tests) ## Run every test (SAN=address,undefined or SAN=thread runs them instrumented)
	@$(MAKE) --no-print-directory mnist || echo 'MNIST could not be had: tests that need it are skipped'
	@$(TEST_ENV) $(if $(filter 1,$(GPU)),tests/gpu/run.sh,tests/run.sh)

soak: all mnist ## Faults in trainings under cmn-run, RUNS=50: they must end with the bits of undisturbed ones
	@$(TEST_ENV) tests/soak.sh

same-bits: all mnist $(B)/fake/bin/darknet ## Prove that no trained bit changed since REF=commit (SAME=fast, ONLY=names; tests/same-bits.sh)
	@$(TEST_ENV) REF='$(REF)' SAME='$(SAME)' ONLY='$(ONLY)' STAND_IN='$(CURDIR)/$(B)/fake/bin/darknet' tests/same-bits.sh

check-patches: $(B)/libcmn.a ## Prove that the patches apply, build and change no result
	@$(TEST_ENV) darknet/check-patches.sh

bench: all mnist ## Measure speed against its ceilings; see docs/performance.md
	@$(TEST_ENV) bench/run.sh

bench-link: all $(HOST_TOOLS) ## Measure exchanges over a narrow link between two emulated nodes
	@$(TEST_ENV) bench/link.sh

bench-slow-link: all mnist ## Measure training over a slow link: overlap, compressors, double buffering, local steps
	@$(TEST_ENV) bench/slow-link.sh

bench-accuracy: all mnist ## Measure what compressors, double buffering and local steps cost in accuracy
	@$(TEST_ENV) bench/accuracy.sh

bench-timeline: all mnist ## Measure what cmn_timeline costs
	@$(TEST_ENV) bench/timeline.sh

bench-large-batch: all mnist ## Measure what a large batch costs in accuracy, and what linear scaling and LARS win back
	@$(TEST_ENV) bench/large-batch.sh

bench-batch-norm: all mnist ## Measure what batch normalisation over all ranks costs a step
	@$(TEST_ENV) bench/batch-norm.sh

bench-reliability: all mnist ## Measure what checkpoints, comparing the weights and looking for NaN cost a step
	@$(TEST_ENV) bench/reliability.sh

install: all $(B)/darknet-cmn.1 $(B)/cmn.pc ## Install below PREFIX=/usr/local (DESTDIR= for packagers)
	@setup/place.sh install '$(DESTDIR)' '$(PREFIX)' '$(B)' '$(DK)'

uninstall: ## Remove exactly what install put below PREFIX
	@setup/place.sh uninstall '$(DESTDIR)' '$(PREFIX)'

clean: ## Remove what was built (build/, bin/)
	rm -rf build bin

distclean: clean ## Also remove data/ and results/
	rm -rf data results

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile fuzz/fuzz.mk
	@sed -n '/^# Knobs/,/^$$/s/^# *//p' Makefile | sed '1s|^|\n|'

# What the test and bench scripts are told. MPIEXEC is a command with arguments, DARKNET and BUILD are one path each.
# Make's own variables stay here: a script that starts make again means a make of its own.
TEST_ENV = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL DARKNET='$(CURDIR)/$(B)/bin/darknet' BUILD='$(CURDIR)/$(B)' \
    MPIEXEC='$(MPIEXEC)' NP='$(NP)' SAN='$(SAN)' CC='$(CC)' CMN_LIBS='-lopenblas -lcjson -lxxhash $(MPI_LIBS) -lm -pthread'

# One call for all purposes: two apt-get at once would wait for each other's lock.
PURPOSES := build $(if $(filter mnist demo detection demo-detection soak same-bits bench bench-slow-link bench-accuracy bench-large-batch bench-batch-norm bench-timeline bench-reliability,$(MAKECMDGOALS)),$(if $(MNIST_DIR),,mnist)) \
    $(filter demo test bench,$(MAKECMDGOALS)) $(if $(filter soak same-bits,$(MAKECMDGOALS)),test) $(if $(filter demo-detection,$(MAKECMDGOALS)),demo) $(if $(filter bench-%,$(MAKECMDGOALS)),bench) $(if $(filter tests,$(MAKECMDGOALS)),test) \
    $(filter fuzz,$(MAKECMDGOALS))
setup:
	@setup/install.sh $(PURPOSES)

# ---- Darknet's source ----------------------------------------------------------------------------------------

# The list makes the source follow the removal of a patch, too.
build/patches.list: FORCE
	@mkdir -p $(@D)
	@echo '$(sort $(wildcard patches/*.patch))' | cmp -s - $@ || echo '$(sort $(wildcard patches/*.patch))' >$@

$(DK)/.stamp: darknet/UPSTREAM darknet/obtain.sh build/patches.list $(wildcard darknet/MANIFEST patches/*.patch) | setup
	$(say) GET $(DK)
	$(Q)rm -rf $(DK).last; if [ -d $(DK) ]; then cp -a $(DK) $(DK).last; fi
	$(Q)darknet/obtain.sh $(DK)
	$(Q)if [ -d $(DK).last ]; then cd $(DK) && find src include examples -type f -exec sh -c \
	    'cmp -s "$$1" "../darknet.last/$$1" && touch -r "../darknet.last/$$1" "$$1"' - {} \; ; fi
	$(Q)rm -rf $(DK).last && touch $@

# Each file's own time decides, not the stamp's: unpacking keeps the time that upstream gave a file, and the recipe
# above the time of a patched file that came out as before, so a changed patch recompiles only what it changed.
$(DK)/src/%.c $(DK)/src/%.cu $(DK)/src/%.h $(DK)/include/%.h $(DK)/examples/%.c: $(DK)/.stamp ;

# ---- Compile and link ----------------------------------------------------------------------------------------

# A flags file changes only when the flags do, and everything compiled with them depends on it.
quoted = '$(subst ','\'',$(strip $(1)))'
define flags_file
$(B)/flags-$(1): FORCE | setup
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quoted,$(2)) | cmp -s - $$@ || printf '%s\n' $$(call quoted,$(2)) >$$@
endef
$(eval $(call flags_file,darknet,$$(CC) $$(DK_FLAGS)))
$(eval $(call flags_file,cmn,$$(CC) $$(CMN_FLAGS)))
$(eval $(call flags_file,run,$$(CC) $$(RUN_FLAGS) $$(LDFLAGS)))
$(eval $(call flags_file,link,$$(LINK) $$(LIBS)))
$(eval $(call flags_file,cuda,$$(NVCC) $$(DK_CUDA_FLAGS) $$(CMN_CUDA_FLAGS)))

$(DK_LIB_OBJ) $(DK_EXEC_OBJ): $(B)/darknet/%.o: $(DK)/%.c $(B)/flags-darknet | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(DK_FLAGS) -MMD -MP -c -o $@ $<

# -MD, not -MMD: Darknet's headers count as system headers here (their prototypes would warn), yet change with patches.
$(CMN_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) -MD -MP -c -o $@ $<

$(TEST_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) -Itests -MD -MP -c -o $@ $<

ifeq ($(GPU),1)
$(B)/cuda.mk: setup/cuda.sh | setup
	$(say) CUDA $@
	$(Q)KEY='$(cuda_key)' CC='$(CC)' NVCC='$(NVCC)' CUDA_HOME='$(CUDA_HOME)' ARCH='$(ARCH)' CUDNN='$(CUDNN)' NCCL='$(NCCL)' $< $@

$(DK_CUDA_OBJ): $(B)/darknet/%.o: $(DK)/%.cu $(B)/flags-cuda | $(DK)/.stamp
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(DK_CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(B)/cmn/mpi/kernels.o: cmn/mpi/kernels.cu $(B)/flags-cuda
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(CMN_CUDA_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
endif

# The list file makes an archive follow the removal of a source file, too.
$(B)/libdarknet.a: $(DK_LIB_OBJ) $(DK_CUDA_OBJ)
$(B)/libcmn.a: $(CMN_OBJ) $(filter $(B)/cmn/%,$(CUDA_OBJ)) $(B)/cmn.list
$(B)/libdarknet.a $(B)/libcmn.a:
	$(say) AR $@
	@rm -f $@
	$(Q)ar rcs $@ $(filter %.o,$^)

$(B)/cmn.list: FORCE
	@mkdir -p $(@D)
	@echo '$(CMN_SRC)' | cmp -s - $@ || echo '$(CMN_SRC)' >$@

$(B)/bin/darknet: $(DK_EXEC_OBJ) $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(LINK) $@ $(DK_EXEC_OBJ) $(LIBS)

# It starts mpiexec, and is linked with no MPI.
$(RUN_OBJ): $(B)/%.o: %.c $(B)/flags-run
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(RUN_FLAGS) -MMD -MP -c -o $@ $<

$(B)/bin/cmn-run: $(RUN_OBJ)
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(RUN_FLAGS) $(LDFLAGS) -o $@ $^ -lcjson

# Replaced by name, never written into: a running job keeps the program that it started with.
bin/darknet: build/cpu/bin/darknet
bin/darknet-gpu: $(B)/bin/darknet
bin/cmn-run: $(B)/bin/cmn-run
bin/darknet bin/darknet-gpu bin/cmn-run:
	@mkdir -p $(@D)
	@cp -p $< $@.new && mv -f $@.new $@

$(UNIT_TESTS) $(RANK_TESTS) $(HOST_TOOLS): $(B)/tests/%: $(B)/tests/%.o $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	$(Q)$(LINK) $@ $< $(LIBS) -lcmocka

FAKE_FLAGS = -DGPU -DCMN_NCCL -isystem tests/gpu/fake
$(FAKE_OBJ): $(B)/fake/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) $(FAKE_FLAGS) -Itests -MD -MP -c -o $@ $<

$(FAKE_DK) $(FAKE_MAIN): $(B)/fake/darknet/%.o: $(DK)/%.c $(B)/flags-darknet | $(DK)/.stamp
	$(say) CC '$< (stand-in)'
	@mkdir -p $(@D)
	$(Q)$(CC) $(DK_FLAGS) $(FAKE_FLAGS) -MMD -MP -c -o $@ $<

FAKE_LINK = $(LINK) $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
    -lopenblas -lcjson -lxxhash $(MPI_LIBS) -lm -pthread
$(B)/fake/libfake.a: $(FAKE_DK) $(FAKE_OWN)
	$(say) AR $@
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/fake/bin/darknet: $(FAKE_MAIN) $(filter $(B)/fake/tests/gpu/fake/%,$(FAKE_OWN)) $(B)/fake/libfake.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(FAKE_LINK)

$(FAKE_TESTS): $(B)/tests/%: $(B)/fake/tests/%.o $(B)/fake/libfake.a $(B)/flags-link
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(FAKE_LINK) -lcmocka

# ---- MNIST ---------------------------------------------------------------------------------------------------

build/cpu/idx2png: examples/mnist/idx2png.c
build/cpu/canvases: examples/detection/canvases.c examples/detection/canvas.c examples/detection/canvas.h
build/cpu/idx2png build/cpu/canvases: examples/mnist/files.c examples/mnist/files.h $(DK)/src/stb_image_write.h | setup
	$(say) CC $(filter %/$(@F).c,$^)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(CMN_WARN) -O2 -isystem $(DK)/src -o $@ $(filter %.c,$^) -lm

# .source names where the images came from; another MNIST_DIR prepares them anew. The tools are order-only: a new
# compiler is no reason to unpack 70 000 files again.
mnist_now := $(shell cat data/mnist/.source 2>/dev/null)
data/mnist/.source: $(if $(MNIST_DIR),$(if $(filter-out x$(subst $() ,_,$(mnist_now)),x$(subst $() ,_,$(MNIST_DIR))),FORCE)) \
        | build/cpu/idx2png
	$(say) MNIST data/mnist
	$(Q)examples/mnist/prepare.sh build/cpu/idx2png

# ---- Digits on larger canvases, for detectors ----------------------------------------------------------------

# Drawn anew whenever MNIST is, and when they would look otherwise.
data/detection/.source: data/mnist/.source examples/detection/prepare.sh $(wildcard examples/detection/canvas*.[ch]) | build/cpu/canvases
	$(say) DRAW data/detection
	$(Q)examples/detection/prepare.sh build/cpu/canvases

$(B)/sheet: examples/detection/sheet.c $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) CC $<
	$(Q)$(CC) $(CMN_FLAGS) $(LDFLAGS) -o $@ $< $(LIBS)

# ---- What only an installation needs -------------------------------------------------------------------------

$(B)/darknet-cmn.1: $(B)/bin/darknet
	$(say) MAN $@
	$(Q)$< cmn man >$@

# Always anew: PREFIX may differ from the last installation.
$(B)/cmn.pc: FORCE | setup
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include/darknet-cmn' '' \
	    'Name: cmn' 'Description: Distributed training for Darknet' 'Version: $(VERSION)' \
	    'Libs: -L$${libdir} -Wl,--start-group -lcmn -ldarknet -Wl,--end-group -lopenblas -lcjson -lxxhash $(MPI_LIBS) $(strip $(CUDA_LIBS) -lm) -pthread' \
	    'Cflags: -I$${includedir} -DCMN_KEEP_RAND -DDARKNET_KEEP_MALLOC $(strip $(GPU_FLAGS) $(CUDA_CFLAGS) $(MPI_CFLAGS))' >$@

include fuzz/fuzz.mk

FORCE:

-include $(patsubst %.o,%.d,$(DK_LIB_OBJ) $(DK_EXEC_OBJ) $(CMN_OBJ) $(RUN_OBJ) $(TEST_OBJ) $(CUDA_OBJ) $(FAKE_OBJ) $(FAKE_DK) $(FAKE_MAIN))
