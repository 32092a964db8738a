# The fuzzed build: Darknet, cmn and the targets by clang, with its fuzzer and sanitizers. And replay, which runs the targets
# on files with the build that people use.

# MEMORY=1: MemorySanitizer instead of the others, in a build of its own. It is for the target image, which looks at all that
# it gets; OpenBLAS and MPI are not instrumented.
F          := build/fuzz$(if $(filter 1,$(MEMORY)),-memory)
FUZZ_CC    ?= clang
FUZZ_SECONDS ?= 60
TARGETS    ?=
export FUZZ_SECONDS TARGETS
FUZZ_SAN   := -fsanitize=fuzzer-no-link,$(if $(filter 1,$(MEMORY)),memory -fsanitize-memory-track-origins,address,undefined) -fno-sanitize=pointer-overflow,shift,float-cast-overflow,nonnull-attribute -fno-sanitize-recover=all
FUZZ_FLAGS := -O1 -g -fno-omit-frame-pointer $(FUZZ_SAN)
# In what has been compiled, memory and files become those that fuzz/memory.c counts.
FUZZ_COUNT  = objcopy $(foreach f,malloc calloc realloc reallocarray aligned_alloc strdup free fopen fdopen fclose $(if $(filter pixels.o,$(@F)),open),--redefine-sym $(f)=fuzz_$(f)) $@
# Darknet's threads and clock, too, so that an input does the same each time and may end anywhere.
FUZZ_ALONE  = objcopy $(foreach f,time pthread_create pthread_join,--redefine-sym $(f)=fuzz_$(f)) $@
# Darknet's main() is called with a training, and what a trainer calls in each step goes by way of fuzz/training.c.
FUZZ_WRAP  := $(foreach f,train_network train_network_datum save_weights,-Wl,--wrap=$(f))
FUZZ_MAIN   = objcopy --redefine-sym main=darknet_main

FUZZ_DK_OBJ  := $(DK_LIB:%=$(F)/darknet/src/%.o) $(DK_EXEC:%=$(F)/darknet/examples/%.o)
# clang 14 does not know the name of an instruction set in float16.c; nothing in it takes memory. fuzz/heartbeat.c includes heartbeat.c.
FUZZ_CMN_OBJ := $(patsubst %.c,$(F)/%.o,$(filter-out cmn/base/float16.c cmn/watchdog/heartbeat.c,$(CMN_SRC)))
# Checksums would refuse whatever a fuzzer makes: they count as right.
$(FUZZ_CMN_OBJ) $(F)/fuzz/heartbeat.o: FUZZ_FLAGS += -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
FUZZ_OWN_SRC := $(filter-out %/replay.c,$(wildcard fuzz/*.c))
FUZZ_OWN_OBJ := $(FUZZ_OWN_SRC:%.c=$(F)/%.o)
REPLAY_OBJ   := $(patsubst %.c,$(B)/%.o,$(filter-out %/engine.c %/memory.c,$(wildcard fuzz/*.c)))

.PHONY: fuzz
fuzz: $(F)/engine $(B)/replay ## Feed hostile input to all readers, FUZZ_SECONDS=60 for each of TARGETS (fuzz/run.sh)
	@fuzz/run.sh $(F)/engine $(B)/replay

$(FUZZ_DK_OBJ): $(F)/darknet/%.o: $(DK)/%.c fuzz/fuzz.mk | $(DK)/.stamp
	$(say) CC '$< (fuzzed)'
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) -w $(FUZZ_FLAGS) -DCBLAS $(DK_OWN) $(DK_INCLUDE) -Icmn $(LIB_CFLAGS) -MMD -MP -c -o $@ $<
	$(Q)$(FUZZ_COUNT)
	$(Q)$(FUZZ_ALONE)
	$(Q)$(if $(filter %/examples/darknet.o,$@),$(FUZZ_MAIN) $@)

$(FUZZ_CMN_OBJ) $(FUZZ_OWN_OBJ): $(F)/%.o: %.c fuzz/fuzz.mk | $(DK)/.stamp
	$(say) CC '$< (fuzzed)'
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(filter-out $(CMN_OPT),$(CMN_FLAGS)) $(FUZZ_FLAGS) -MD -MP -c -o $@ $<
	$(Q)$(if $(filter cmn/% fuzz/files.c fuzz/networks.c fuzz/resume.c,$<),$(FUZZ_COUNT))

$(F)/engine: $(FUZZ_OWN_OBJ) $(FUZZ_DK_OBJ) $(FUZZ_CMN_OBJ) $(B)/libcmn.a
	$(say) LD $@
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(FUZZ_WRAP) $(LIB_LIBS) $(MPI_LIBS) -lm -pthread

$(REPLAY_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) -MD -MP -c -o $@ $<

$(B)/fuzz/darknet-main.o: $(B)/darknet/examples/darknet.o
	@mkdir -p $(@D)
	$(Q)$(FUZZ_MAIN) $< $@

REPLAY_DK := $(filter-out %/darknet.o,$(DK_EXEC_OBJ)) $(B)/fuzz/darknet-main.o
$(B)/replay: $(REPLAY_OBJ) $(REPLAY_DK) $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	$(Q)$(LINK) $@ $(REPLAY_OBJ) $(REPLAY_DK) $(FUZZ_WRAP) $(LIBS)

-include $(patsubst %.o,%.d,$(FUZZ_DK_OBJ) $(FUZZ_CMN_OBJ) $(FUZZ_OWN_OBJ) $(REPLAY_OBJ))
