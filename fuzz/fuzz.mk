# The fuzzed build: Darknet, cmn and the targets by clang, with its fuzzer and sanitizers. And replay, which runs the targets
# on files with the build that people use.

F          := build/fuzz
FUZZ_CC    ?= clang
FUZZ_SECONDS ?= 60
TARGETS    ?=
export FUZZ_SECONDS TARGETS
FUZZ_SAN   := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=pointer-overflow,shift,float-cast-overflow,nonnull-attribute -fno-sanitize-recover=all
FUZZ_FLAGS := -O1 -g -fno-omit-frame-pointer $(FUZZ_SAN)
# In what has been compiled, memory and files become those that fuzz/memory.c counts.
FUZZ_COUNT  = objcopy $(foreach f,malloc calloc realloc reallocarray aligned_alloc strdup free fopen fdopen fclose,--redefine-sym $(f)=fuzz_$(f)) $@

FUZZ_DK_OBJ  := $(DK_LIB:%=$(F)/darknet/src/%.o) $(F)/darknet/examples/rnn.o
# clang 14 does not know the name of an instruction set there; nothing in it takes memory.
FUZZ_CMN_OBJ := $(patsubst %.c,$(F)/%.o,$(filter-out cmn/base/float16.c,$(CMN_SRC)))
# Checksums would refuse whatever a fuzzer makes: they count as right.
$(FUZZ_CMN_OBJ): FUZZ_FLAGS += -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
FUZZ_OWN_SRC := $(filter-out %/replay.c,$(wildcard fuzz/*.c))
FUZZ_OWN_OBJ := $(FUZZ_OWN_SRC:%.c=$(F)/%.o)
REPLAY_OBJ   := $(patsubst %.c,$(B)/%.o,$(filter-out %/engine.c %/memory.c,$(wildcard fuzz/*.c)))

.PHONY: fuzz
fuzz: $(F)/engine $(B)/replay ## Feed hostile input to all readers, FUZZ_SECONDS=60 for each of TARGETS (docs/use/reliability.md)
	@fuzz/run.sh $(F)/engine $(B)/replay

$(FUZZ_DK_OBJ): $(F)/darknet/%.o: $(DK)/%.c fuzz/fuzz.mk | $(DK)/.stamp
	$(say) CC '$< (fuzzed)'
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) -w $(FUZZ_FLAGS) -DCBLAS $(DK_OWN) $(DK_INCLUDE) -Icmn $(LIB_CFLAGS) -MMD -MP -c -o $@ $<
	$(Q)$(FUZZ_COUNT)

$(FUZZ_CMN_OBJ) $(FUZZ_OWN_OBJ): $(F)/%.o: %.c fuzz/fuzz.mk | $(DK)/.stamp
	$(say) CC '$< (fuzzed)'
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(filter-out $(CMN_OPT),$(CMN_FLAGS)) $(FUZZ_FLAGS) -MD -MP -c -o $@ $<
	$(Q)$(if $(filter cmn/% fuzz/files.c fuzz/networks.c fuzz/resume.c,$<),$(FUZZ_COUNT))

$(F)/engine: $(FUZZ_OWN_OBJ) $(FUZZ_DK_OBJ) $(FUZZ_CMN_OBJ) $(B)/libcmn.a
	$(say) LD $@
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIB_LIBS) $(MPI_LIBS) -lm -pthread

$(REPLAY_OBJ): $(B)/%.o: %.c $(B)/flags-cmn | $(DK)/.stamp
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CMN_FLAGS) -MD -MP -c -o $@ $<

$(B)/replay: $(REPLAY_OBJ) $(B)/darknet/examples/rnn.o $(B)/libcmn.a $(B)/libdarknet.a $(B)/flags-link
	$(say) LD $@
	$(Q)$(LINK) $@ $(REPLAY_OBJ) $(B)/darknet/examples/rnn.o $(LIBS)

-include $(patsubst %.o,%.d,$(FUZZ_DK_OBJ) $(FUZZ_CMN_OBJ) $(FUZZ_OWN_OBJ) $(REPLAY_OBJ))
