# The examples: MNIST, and its digits on larger canvases for detectors.

.PHONY: mnist demo detection demo-detection

mnist: data/mnist/.source ## Fetch and prepare MNIST in data/mnist (MNIST_DIR=dir uses idx files already there)

demo: all mnist ## Train MNIST on NP=2 ranks (EPOCHS=3); weights, log and chart go to results/mnist
	@DARKNET='$(B)/bin/darknet' MPIEXEC='$(MPIEXEC)' NP='$(NP)' EPOCHS='$(EPOCHS)' examples/mnist/demo.sh

detection: data/detection/.source ## Draw MNIST's digits on larger canvases, for detectors, in data/detection

demo-detection: all detection $(B)/sheet ## Train a detector on NP=2 ranks; weights, log, chart and picture go to results/detection
	@DARKNET='$(B)/bin/darknet' SHEET='$(B)/sheet' LETTERS='$(DK)/data/labels' MPIEXEC='$(MPIEXEC)' NP='$(NP)' examples/detection/demo.sh

build/cpu/idx2png: examples/mnist/idx2png.c
build/cpu/canvases: examples/detection/canvases.c examples/detection/canvas.c examples/detection/canvas.h
build/cpu/idx2png build/cpu/canvases: examples/mnist/files.c examples/mnist/files.h $(DK)/src/stb_image_write.h | deps-check
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
