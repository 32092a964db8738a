# TREE=alexeyab (`make test TREE=alexeyab ONLY=cli/faults`, CONTRIBUTING.md): AlexeyAB's tree as the tests build it. It is
# ALEXEYAB_TREE, or a work tree of commit 59596d78 in the user's cache; without either the tests of that tree are skipped.
# With OpenCV where that is installed, and with its own matrix products, so that the unpatched tree computes the same bits.
# Darknet is compiled as always, the module in less time, and without a warning.

ALEXEYAB_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/darknet-cmn/alexeyab-59596d78
# Make's own wildcard takes a path with a blank for two.
ALEXEYAB_TREE ?= $(shell [ ! -d $(call quoted,$(ALEXEYAB_CACHE)/src) ] || printf '%s\n' $(call quoted,$(ALEXEYAB_CACHE)))
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
$(error TREE=alexeyab: no tree of AlexeyAB's: set ALEXEYAB_TREE to a folder with its source, or lay commit 59596d78 out in $(ALEXEYAB_CACHE))
endif
DARKNET_TREE := $(ALEXEYAB_TREE)
GEMM         := own
OPENCV       := $(ALEXEYAB_OPENCV)
AVX          := $(ALEXEYAB_AVX)
ALEXEYAB_BUILD = $(B)# with SAN, or another MPI, one of its own
TREE_OPT     := -O1 -Werror -Wno-error=format-truncation # -O1 knows less about lengths
endif
endif
