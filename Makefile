# darknet-cmn: everything a person runs. `make help` lists it.
#
# Knobs: V=1 (show commands), SAN=address,undefined or SAN=thread (instrumented build of its own), DARKNET_TREE=dir (an existing
# Darknet source tree or clone), DARKNET_TARBALL=file, MNIST_DIR=dir (idx files already there), NP=ranks, PREFIX, LIBDIR=lib below it,
# DESTDIR, CC, MPICC, MPIEXEC, CFLAGS, LDFLAGS, PKG_CONFIG_PATH (docs/start/install.md).
# DARKNET_TREE=AlexeyAB's tree: bin/darknet-alexeyab, and with it OPENCV=1, AVX=1, GEMM=own (docs/use/alexeyab.md).
# ONEDNN=0: without oneDNN, which computes convolutions where it is installed; ONEDNN=1: not without (docs/start/install.md).
# GPU=1 (bin/darknet-gpu, a build of its own; docs/use/gpu.md), and with it CUDNN=1, NCCL=1, ARCH=80,90, CUDA_HOME=dir or NVCC=program;
# over AlexeyAB's tree CUDNN_HALF=1, too.

VERSION := 1.0.0

ifeq ($(origin CC),default)
CC := gcc
endif
MPICC   ?= mpicc
PREFIX  ?= /usr/local
DESTDIR ?=
LIBDIR  := lib
NP      ?= 2
SAN     ?=

# mpiexec is that of mpicc: mpicc.mpich, mpiexec.mpich. The options are Open MPI's; MPICH needs none of them.
AS_ROOT  := $(filter 0,$(shell id -u))
LAUNCHER  = $(if $(findstring /,$(MPICC)),$(dir $(MPICC)))$(if $(findstring mpicc,$(notdir $(MPICC))),$(subst mpicc,mpiexec,$(notdir $(MPICC))),mpiexec)
MPIEXEC  ?= $(LAUNCHER)$(if $(shell $(LAUNCHER) --version 2>/dev/null | grep -i hydra),, --oversubscribe --bind-to none --mca mpi_yield_when_idle \
    1$(if $(AS_ROOT), --allow-run-as-root))

# After Ctrl-C Open MPI 4's mpiexec waits this many seconds before SIGTERM, which makes the ranks stop and save, and as many
# again before SIGKILL. Long enough for a step and a weights file, and no longer: the first wait does nothing. Open MPI 5 has
# 0.25 s each, and no setting.
OMPI_MCA_odls_base_sigkill_timeout ?= 3
export OMPI_MCA_odls_base_sigkill_timeout
export DARKNET_TREE DARKNET_TARBALL MNIST_DIR

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
quoted = '$(subst ','\'',$(strip $(1)))'
# Make's own wildcard takes a path with a blank for two.
is_alexeyab = $(if $(DARKNET_TREE),$(shell [ ! -e $(call quoted,$(DARKNET_TREE)/src/gaussian_yolo_layer.c) ] || echo 1))
ifneq ($(filter 1,$(CUDNN) $(NCCL)),)
ifneq ($(GPU),1)
$(error CUDNN=1 and NCCL=1 belong to a GPU build: add GPU=1)
endif
endif
ifeq ($(CUDNN_HALF),1)
ifneq ($(CUDNN),1)
$(error CUDNN_HALF=1 belongs to a build with cuDNN: add GPU=1 CUDNN=1)
endif
ifeq ($(is_alexeyab),)
$(error CUDNN_HALF=1: pjreddie's Darknet has no half precision; AlexeyAB's has it (docs/use/alexeyab.md))
endif
endif
ifneq ($(filter-out 0 1,$(ONEDNN)),)
$(error ONEDNN=$(ONEDNN): must be 1 or 0)
endif
ifeq ($(GPU),1)
ifneq ($(SAN),)
$(error GPU=1 and SAN=$(SAN) do not go together: the sanitizers know nothing of the GPU's memory)
endif
endif
include tests/tree.mk
# The tree of Darknet that is built: pjreddie's, unless DARKNET_TREE is AlexeyAB's (docs/use/alexeyab.md).
TREE    := $(if $(is_alexeyab),alexeyab,pjreddie)
SUFFIX  := $(if $(filter alexeyab,$(TREE)),-alexeyab)
LINKED  := $(if $(SUFFIX),$(if $(filter 1,$(OPENCV)),-opencv)$(if $(filter 1,$(AVX)),-avx)$(if $(filter own,$(GEMM)),-gemm))
VARIANT := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),$(if $(filter 1,$(GPU)),gpu$(if $(filter \
    1,$(CUDNN)),-cudnn)$(if $(filter 1,$(CUDNN_HALF)),-half)$(if $(filter 1,$(NCCL)),-nccl),cpu$(if $(filter 0,$(ONEDNN)),-no-onednn)))$(subst .,-,$(suffix $(notdir $(MPICC))))$(SUFFIX)$(LINKED)
B  := build/$(VARIANT)
DK := build/darknet$(SUFFIX)

include darknet/darknet.mk

# Of the files about what one tree alone has, that of this tree.
CMN_SRC    := $(filter-out $(filter-out %/tree_$(TREE).c,$(wildcard cmn/engine/tree_*.c)),$(shell find cmn -name '*.c' 2>/dev/null | LC_ALL=C sort))
RUN_SRC    := $(wildcard run/*.c)

DK_LIB_OBJ  := $(DK_LIB:%=$(B)/darknet/src/%.o) $(DK_CPP:%=$(B)/darknet/src/%.o)
DK_EXEC_OBJ := $(DK_EXEC:%=$(B)/darknet/$(DK_EXEC_IN)/%.o)
CMN_OBJ     := $(CMN_SRC:%.c=$(B)/%.o)
RUN_OBJ     := $(RUN_SRC:%.c=$(B)/%.o)
include setup/gpu.mk

ifeq ($(SAN),)
DK_OPT  := -Ofast
CMN_OPT := $(or $(TREE_OPT),-O2 -g)
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

# Libraries may be installed only by this very run of make, so they are looked for when a recipe first needs them, and once.
LIBRARIES  = openblas libcjson libxxhash libsodium $(if $(USES_ONEDNN),libdnnl gomp) $(if $(PROTOBUF_C),libprotobuf-c)
SETUP      = CC='$(CC)' MPICC='$(MPICC)' MPIEXEC='$(MPIEXEC)' CFLAGS=$(call quoted,$(CFLAGS)) LDFLAGS=$(call quoted,$(LDFLAGS)) \
    PKG_CONFIG='$(PKG_CONFIG)' PKG_CONFIG_PATH='$(PKG_CONFIG_PATH)' setup/install.sh
# Without it cmn_tensorboard is refused, with a line that says what to install.
PROTOBUF_C = $(eval PROTOBUF_C := $$(shell $$(SETUP) check tensorboard >/dev/null 2>&1 && echo 1))$(PROTOBUF_C)
# Convolutions on the CPU. GPUs have cuDNN, and the sanitizers do not see into it.
ONEDNN    ?= $(if $(SAN)$(filter 1,$(GPU)),0)
USES_ONEDNN = $(eval USES_ONEDNN := $$(filter 1,$$(ONEDNN))$$(if $$(ONEDNN),,$$(shell $$(SETUP) check onednn >/dev/null 2>&1 && echo 1)))$(USES_ONEDNN)
ONEDNN_FLAGS = $(if $(USES_ONEDNN),-DONEDNN)
flags      = $(shell MPICC='$(MPICC)' PKG_CONFIG='$(PKG_CONFIG)' PKG_CONFIG_PATH='$(PKG_CONFIG_PATH)' setup/flags.sh $(1))
LIB_CFLAGS = $(eval LIB_CFLAGS := $$(call flags,compile $(LIBRARIES)))$(LIB_CFLAGS)
LIB_LIBS   = $(eval LIB_LIBS := $$(call flags,link $(LIBRARIES)))$(LIB_LIBS)
MPI_CFLAGS = $(eval MPI_CFLAGS := $$(call flags,compile mpi))$(MPI_CFLAGS)
MPI_LIBS   = $(eval MPI_LIBS := $$(call flags,link mpi))$(MPI_LIBS)

DK_INCLUDE = -I$(DK)/include -I$(DK)/src $(DK_OWN_INCLUDE)
DK_OWN     = -include $(DK)/src/own.h
DK_FLAGS   = -Wall -Wno-unused-result -Wno-unknown-pragmas -Wno-stringop-truncation \
    -Wno-stringop-overflow -Wno-unknown-warning-option -fPIC $(DK_OPT) $(if $(filter own,$(GEMM)),,-DCBLAS) $(ONEDNN_FLAGS) $(GPU_FLAGS) $(DK_OWN) $(DK_OWN_FLAGS) $(DK_INCLUDE) -Icmn \
    $(CUDA_CFLAGS) $(LIB_CFLAGS) $(CFLAGS)
RUN_FLAGS  = -std=c11 -D_GNU_SOURCE $(CMN_WARN) $(CMN_OPT) $(LIB_CFLAGS) $(CFLAGS)
CMN_WARN   = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CMN_FLAGS  = -std=c11 -D_GNU_SOURCE -DCMN_VERSION='"$(VERSION)"' $(CMN_WARN) -fPIC $(CMN_OPT) \
    $(ONEDNN_FLAGS) $(GPU_FLAGS) $(if $(PROTOBUF_C),-DCMN_PROTOBUF_C) $(if $(findstring -opencv,$(LINKED)),-DOPENCV) -Icmn -isystem $(B)/generated $(DK_INCLUDE:-I%=-isystem %) $(CUDA_CFLAGS) $(LIB_CFLAGS) $(MPI_CFLAGS) $(CFLAGS)
# The two libraries call each other. -Ofast stays on the link line because upstream has it there too: it selects
# the start-up code that flushes denormals to zero, and results should be upstream's.
LINK = $(CC) $(DK_OPT) $(SAN_LINK) $(CFLAGS) $(NAMES) $(LDFLAGS) -o
# For the stacks that the watchdog prints. Not all names: some of Darknet's, such as `error`, are also those of libraries.
NAMES = $(addprefix -Wl$(comma)--export-dynamic-symbol=,main 'cmn_*' 'forward_*' 'backward_*' 'update_*' 'train_*' 'validate_*' \
    'run_*' 'load_*' 'save_*' 'read_*' 'parse_*' 'gemm*' 'im2col_*' 'col2im_*')
LIBS = -Wl,--start-group $(B)/libcmn.a $(B)/libdarknet.a -Wl,--end-group $(LIB_LIBS) $(MPI_LIBS) \
    $(CUDA_LIBS) $(DK_LIBS) -lm -pthread

# ---- Targets -------------------------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all man reference deps deps-check darknet-source install uninstall dist clean distclean help FORCE

all: $(if $(SAN),$(B)/bin/darknet $(B)/bin/cmn-run,bin/darknet$(SUFFIX)$(if $(filter 1,$(GPU)),-gpu) bin/cmn-run) ## Build bin/darknet (the default)

# Only these install packages, and they say what; other goals say what is missing. FOR: purposes in setup/packages.
INSTALLING := $(filter deps demo demo-detection test,$(MAKECMDGOALS))
FOR ?= build $(if $(filter 1,$(ONEDNN)),onednn) $(if $(MNIST_DIR),,mnist) $(if $(filter demo-detection,$(INSTALLING)),demo,$(or $(filter demo test,$(INSTALLING)),demo test))
needs = $(or $(filter mnist fuzz,$(1)),$(if $(filter bench%,$(1)),bench mnist),$(if $(filter tests,$(1)),test), \
    $(if $(filter soak same-bits,$(1)),test mnist),$(if $(filter detection,$(1)),mnist))
deps: deps-check ## Install the packages that the build, demo and tests need (FOR=purposes, as in setup/packages)
deps-check:
	@$(SETUP) $(if $(INSTALLING),install $(FOR),check build $(if $(filter 1,$(ONEDNN)),onednn) $(sort $(foreach g,$(MAKECMDGOALS),$(call needs,$(g)))))

darknet-source: $(DK)/.stamp ## Obtain, verify and patch Darknet's source into build/darknet

man: $(B)/darknet.1 $(B)/cmn-run.1 ## Build the man pages into build/: man -l build/cpu/darknet.1

reference: $(B)/bin/darknet $(B)/bin/cmn-run ## Write the tables of keys, commands and options in docs/ anew
	@setup/reference.sh tables '$(B)/bin' docs/reference/keys.md docs/reference/communicators.md docs/reference/numbers.md docs/reference/commands.md docs/use/cmn-run.md

install: all man $(B)/completion $(B)/cmn.pc ## Install below PREFIX=/usr/local (DESTDIR= for packagers)
	@setup/place.sh install '$(DESTDIR)' '$(PREFIX)' '$(B)' '$(DK)' '$(LIBDIR)'

uninstall: ## Remove exactly what install put below PREFIX
	@setup/place.sh uninstall '$(DESTDIR)' '$(PREFIX)'

# Only what is committed; obtain.sh looks for its archive in darknet/ first.
DIST := darknet-cmn-$(VERSION)
dist: ## Pack the last commit, with Darknet's source, into build/darknet-cmn-VERSION.tar.gz
	$(Q)env -u DARKNET_TREE darknet/obtain.sh --pristine build/dist
	$(Q)printf '%s\n\n  * CHANGELOG.md says what is new.\n\n' 'darknet-cmn ($(VERSION)-1) unstable; urgency=medium' >build/dist/changelog
	$(Q)echo " -- $$(sed -n 's/^Maintainer: //p' debian/control)  $$(git log -1 --format=%aD)" >>build/dist/changelog
	$(Q). darknet/UPSTREAM && git archive -o build/$(DIST).tar.gz --prefix=$(DIST)/darknet/ --add-file="build/upstream/$$ORIG" \
	    --prefix=$(DIST)/debian/ --add-file=build/dist/changelog --prefix=$(DIST)/ HEAD
	$(say) DIST build/$(DIST).tar.gz

clean: ## Remove what was built (build/, bin/)
	rm -rf build bin

distclean: clean ## Also remove data/ and results/
	rm -rf data results

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(filter Makefile %.mk,$(MAKEFILE_LIST)) | sort -u
	@sed -n '/^# Knobs/,/^$$/s/^# *//p' Makefile | sed '1s|^|\n|'

# ---- Compile and link ----------------------------------------------------------------------------------------

# A flags file changes only when the flags do, and everything compiled with them depends on it.
define flags_file
$(B)/flags-$(1): FORCE | deps-check
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quoted,$(2)) | cmp -s - $$@ || printf '%s\n' $$(call quoted,$(2)) >$$@
endef
$(eval $(call flags_file,darknet,$$(CC) $$(DK_FLAGS)))
$(eval $(call flags_file,cmn,$$(CC) $$(CMN_FLAGS)))
$(eval $(call flags_file,run,$$(CC) $$(RUN_FLAGS) $$(LDFLAGS)))
$(eval $(call flags_file,link,$$(LINK) $$(LIBS)))
$(eval $(call flags_file,cuda,$$(NVCC) $$(DK_CUDA_FLAGS) $$(CMN_CUDA_FLAGS)))

$(filter-out $(DK_CPP:%=$(B)/darknet/src/%.o),$(DK_LIB_OBJ) $(DK_EXEC_OBJ)): $(B)/darknet/%.o: $(DK)/%.c $(B)/flags-darknet | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(DK_FLAGS) -MMD -MP -c -o $@ $<

$(DK_CPP:%=$(B)/darknet/src/%.o): $(B)/darknet/%.o: $(DK)/%.cpp $(B)/flags-darknet | $(DK)/.stamp
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++11 $(filter-out $(DK_OWN) -Wno-incompatible-pointer-types,$(DK_FLAGS)) -MMD -MP -c -o $@ $<

# -MD, not -MMD: Darknet's headers count as system headers here (their prototypes would warn), yet change with patches.
# These share their work among oneDNN's threads. The loops of the last two are left to the compiler.
$(addprefix $(B)/cmn/engine/,channels.o nhwc_images.o nhwc_floats.o): private CMN_FLAGS += $(if $(USES_ONEDNN),-fopenmp)
$(B)/cmn/engine/nhwc_images.o $(B)/cmn/engine/nhwc_floats.o: private CMN_FLAGS += -O3 -fno-trapping-math -ffp-contract=off
$(CMN_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) -MD -MP -c -o $@ $<

# The records of TensorBoard's event files, by protoc and its part for C; empty where that is not installed.
EVENTS := $(B)/generated/event.pb-c
$(EVENTS).h $(EVENTS).o &: cmn/report/event.proto $(B)/flags-cmn
	$(say) PROTO $<
	@mkdir -p $(@D)
	$(Q)$(if $(PROTOBUF_C),protoc --proto_path=$(<D) --c_out=$(@D) $(<F),: | tee $(EVENTS).h >$(EVENTS).c)
	$(Q)$(CC) $(CMN_FLAGS) -c -o $(EVENTS).o $(EVENTS).c
$(B)/cmn/report/tensorboard.o: | $(EVENTS).h

# The list file makes an archive follow the removal of a source file, too.
$(B)/libdarknet.a: $(DK_LIB_OBJ) $(DK_CUDA_OBJ)
$(B)/libcmn.a: $(CMN_OBJ) $(EVENTS).o $(filter $(B)/cmn/%,$(CUDA_OBJ)) $(B)/cmn.list
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
	$(if $(ONEDNN)$(USES_ONEDNN),,@echo 'oneDNN is not installed (libdnnl-dev): convolutions by OpenBLAS, which is slower; ONEDNN=0 asks for that')

# It starts mpiexec, and is linked with no MPI.
$(RUN_OBJ): $(B)/%.o: %.c $(B)/flags-run
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(RUN_FLAGS) -MMD -MP -c -o $@ $<

$(B)/bin/cmn-run: $(RUN_OBJ)
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(RUN_FLAGS) $(LDFLAGS) -o $@ $^ $(call flags,link libcjson)

# Replaced by name, never written into: a running job keeps the program that it started with. By content, not by time: the
# other program may be that of another MPI.
bin/darknet$(SUFFIX) bin/darknet$(SUFFIX)-gpu: $(B)/bin/darknet FORCE
bin/cmn-run: $(B)/bin/cmn-run FORCE
bin/darknet$(SUFFIX) bin/darknet$(SUFFIX)-gpu bin/cmn-run:
	@mkdir -p $(@D)
	@cmp -s $< $@ || { cp -p $< $@.new && mv -f $@.new $@; }

# ---- What only an installation needs -------------------------------------------------------------------------

$(B)/darknet.1 $(B)/cmn-run.1: $(B)/%.1: docs/man/%.1 docs/reference/files.md setup/reference.sh $(B)/bin/darknet $(B)/bin/cmn-run
	$(say) MAN $@
	$(Q)setup/reference.sh man '$(B)/bin' '$(VERSION)' $< >$@

$(B)/completion: setup/completion.bash setup/reference.sh $(B)/bin/darknet $(B)/bin/cmn-run
	$(Q)setup/reference.sh completion '$(B)/bin' >$@

# Always anew: PREFIX may differ from the last installation.
$(B)/cmn.pc: FORCE | deps-check
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/$(LIBDIR)' 'includedir=$${prefix}/include/darknet-cmn' '' \
	    'Name: cmn' 'Description: Distributed training for Darknet' 'Version: $(VERSION)' \
	    'Libs: -L$${libdir} -Wl,--start-group -lcmn -ldarknet -Wl,--end-group $(LIB_LIBS) $(MPI_LIBS) $(strip $(CUDA_LIBS) $(DK_LIBS) -lm) -pthread' \
	    'Cflags: -I$${includedir} $(strip $(GPU_FLAGS) $(CUDA_CFLAGS) $(LIB_CFLAGS) $(MPI_CFLAGS))' >$@

include tests/tests.mk examples/examples.mk bench/bench.mk fuzz/fuzz.mk

FORCE:

-include $(patsubst %.o,%.d,$(DK_LIB_OBJ) $(DK_EXEC_OBJ) $(CMN_OBJ) $(RUN_OBJ) $(TEST_OBJ) $(CUDA_OBJ) $(FAKE_OBJ) $(FAKE_DK) $(FAKE_MAIN) $(FAKE_CU) $(FAKE_BARE))
