# TREE=alexeyab (`make test TREE=alexeyab ONLY=cli/faults`, CONTRIBUTING.md): AlexeyAB's tree as the tests build it. It is ALEXEYAB_TREE,
# or the tarball beside the checkout. With OpenCV where that is installed, and with its own matrix products, so that the
# unpatched tree computes the same bits. Darknet is compiled as always, the module in less time, and without a warning.

ALEXEYAB_TARBALL := $(wildcard ../shared/alexeyab/darknet-59596d78.tar.xz)
# A target of make's is relative: $(CURDIR) may have blanks, and would be several.
ALEXEYAB_UNPACKED := $(if $(ALEXEYAB_TARBALL),build/alexeyab/darknet)
ALEXEYAB_TREE ?= $(if $(ALEXEYAB_UNPACKED),$(CURDIR)/$(ALEXEYAB_UNPACKED))
export ALEXEYAB_TREE

ifneq ($(ALEXEYAB_TREE),)
ALEXEYAB_OPENCV := $(shell ! pkg-config --exists opencv4 2>/dev/null || echo 1)
ALEXEYAB_AVX    := $(shell ! grep -qw avx2 /proc/cpuinfo || echo 1)
ALEXEYAB_BUILD  := build/cpu-alexeyab$(if $(ALEXEYAB_OPENCV),-opencv)$(if $(ALEXEYAB_AVX),-avx)-gemm
endif

# On the command line alone: scripts export it, too.
ifeq ($(origin TREE),command line)
ifeq ($(TREE),alexeyab)
ifeq ($(ALEXEYAB_TREE),)
$(error TREE=alexeyab: no tree of AlexeyAB's: set ALEXEYAB_TREE to a folder with its source)
endif
DARKNET_TREE := $(ALEXEYAB_TREE)
GEMM         := own
OPENCV       := $(ALEXEYAB_OPENCV)
AVX          := $(ALEXEYAB_AVX)
ALEXEYAB_BUILD = $(B)# with SAN, or another MPI, one of its own
TREE_OPT     := -O1 -Werror -Wno-error=format-truncation # -O1 knows less about lengths
endif
endif

ifneq ($(ALEXEYAB_UNPACKED),)
$(ALEXEYAB_UNPACKED): $(ALEXEYAB_TARBALL)
	$(say) GET $@
	$(Q)rm -rf build/alexeyab && mkdir -p build/alexeyab && tar -xJf $< -C build/alexeyab && touch $@
endif
