# Measurements: ratios within one run, asserted by nothing. Each writes a file of bench/results/, of which bench/README.md is made.

.PHONY: bench bench-link bench-slow-link bench-accuracy bench-timeline bench-large-batch bench-batch-norm bench-exact bench-balance bench-data bench-reliability bench-faults bench-peers bench-mixed bench-docs simulate simulate-check

bench: all mnist ## Measure speed against the no-communication baseline; see bench/README.md
	@$(TEST_ENV) bench/run.sh

bench-link: all $(HOST_TOOLS) ## Measure exchanges over a slow link between two emulated nodes
	@$(TEST_ENV) bench/link.sh

bench-slow-link: all mnist ## Measure training over a slow link: overlap, compressors, double buffering, local steps
	@$(TEST_ENV) bench/slow-link.sh

bench-accuracy: all mnist ## Measure what compressors, double buffering and local steps cost in accuracy
	@$(TEST_ENV) bench/accuracy.sh

bench-large-batch: all mnist ## Measure what a large batch costs in accuracy, and what linear scaling and LARS win back
	@$(TEST_ENV) bench/large-batch.sh

bench-batch-norm: ## Measure what batch normalisation over all ranks costs a step
bench-exact: ## Measure what cmn_exact costs a step
bench-timeline: ## Measure what cmn_timeline costs a step
bench-reliability: ## Measure what checkpoints, checks, clipping and an average cost a step
bench-batch-norm bench-exact bench-timeline bench-reliability: bench-%: all mnist
	@$(TEST_ENV) bench/step-cost.sh $*

bench-balance: all mnist ## Measure what cmn_balance gains where one rank is slow (as root)
	@$(TEST_ENV) bench/balance.sh

bench-data: all mnist ## Measure what decoded images take of a node's memory, and cmn_data=scatter against rsync (WHAT, RATE)
	@$(TEST_ENV) bench/data.sh

bench-faults: all mnist ## Measure how long faults take to their message and to the end, and what they leave (TRIES=20)
	@$(TEST_ENV) bench/faults.sh

bench-peers: all mnist build/cpu/canvases $(B)/products ## Measure the same work by PyTorch DDP and ChainerMN, where installed (CHAINER=dir)
	@$(TEST_ENV) bench/peers.sh

bench-mixed: all mnist ## Compare the loss in bf16 with that in 32 bits
	@$(TEST_ENV) bench/mixed.sh

bench-docs: all ## Write the tables of bench/README.md, and the charts, anew from bench/results/
	@setup/reference.sh tables '$(B)/bin' bench/README.md
	@bench/charts.sh

$(B)/products: bench/products.c $(B)/flags-cmn
	$(say) CC $<
	$(Q)$(CC) $(CMN_FLAGS) $(LDFLAGS) -o $@ $< $(LIB_LIBS) $(MPI_LIBS)

simulate: ## Simulate steps on many nodes by SimGrid: NODES, RANKS, GBITS, NETS, BY (bench/README.md)
	@$(TEST_ENV) NODES='$(NODES)' RANKS='$(RANKS)' GBITS='$(GBITS)' NETS='$(NETS)' BY='$(BY)' bench/simulate.sh

simulate-check: ## Hold the simulation against real exchanges between emulated nodes: NODES, RATES, SIZES, BY
	@$(TEST_ENV) NODES='$(NODES)' RATES='$(RATES)' SIZES='$(SIZES)' BY='$(BY)' bench/simulate-check.sh
