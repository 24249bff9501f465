# make help lists the targets.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
SPEC ?= experiments/quickstart.yaml
RUNTIME ?=
CHAOS_PROGRAMS ?= 1-3
EXAMPLES ?=
CHAOS ?= 1-10
MIXTURES ?= 1-100
INPUTS ?= 10000
TARGETS ?= $(sort $(basename $(notdir $(wildcard bench/fuzz/targets/[!_]*.py))))
RESUMPTIONS ?= 1-10
KERNELS ?= debian12,backports
ROWS ?=
FUZZ ?=

.DEFAULT_GOAL := help
.PHONY: help install run agree test lint format bench shards programs chaos-programs chaos mixtures resumptions kernels links traffic images base-image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make the virtual environment and install the testbed into it

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=...") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

run: install ## run an experiment: make run SPEC=experiments/quickstart.yaml RUNTIME=docker
	$(BIN)/testbed run $(SPEC) $(if $(RUNTIME),--set devices.runtime=$(RUNTIME))

agree: install ## run 18 experiments in namespaces, Docker and the simulator, and compare the results to the bit
	$(BIN)/python -m bench.agree

HOSTS ?= 3

.PHONY: hosts
hosts: install ## run the experiments of `make agree` over several hosts (namespaces), and compare with the simulator: HOSTS=2
	$(BIN)/python -m bench.hosts --hosts $(HOSTS)

CHAOS_HOSTS ?= 1-10

.PHONY: chaos-hosts
chaos-hosts: install ## disturb runs over three hosts (kills, cuts, signals) at random moments; check ends, leftovers and the next run: CHAOS_HOSTS=1-30
	$(BIN)/python -m bench.host_chaos --seeds $(CHAOS_HOSTS)

CHAOS_RAY ?= 1-10

.PHONY: chaos-ray
chaos-ray: install ## the same over the nodes of a Ray cluster, whose daemons are killed and frozen, too; installs Ray: CHAOS_RAY=1-30
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[ray]'
	$(BIN)/python -m bench.ray_chaos --seeds $(CHAOS_RAY)

PAPER ?= adacomp
PART ?= all
SCALE ?=
ENGINE ?= docker
SEEDS ?=
ONLY ?=
OUT ?=
COMMIT ?=
ADACOMP := fig1 fig3 fig3-even fig3-wide fig3-per-tensor selection fig4 table2
REPRODUCE = $(BIN)/python -m reproduction

.PHONY: reproduce reproduce-pages
reproduce: install ## reproduce a paper, a part of it, or with PAPER=all SCALE=tiny every page in minutes: PART=fig3 ENGINE=simulation COMMIT=1
	$(REPRODUCE) $(PART) --paper $(PAPER) --engine $(ENGINE) $(if $(SCALE),--scale $(SCALE)) \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT)) \
		$(if $(COMMIT),--commit-pages)

reproduce-pages: install ## write the pages of the runs in OUT into docs/reproduction: PAPER=adacomp SCALE=quick
	$(REPRODUCE) pages --paper $(PAPER) $(if $(SCALE),--scale $(SCALE)) $(if $(OUT),--out $(OUT)) \
		--commit-pages

.PHONY: adacomp adacomp-pages $(ADACOMP:%=adacomp-%)
adacomp: reproduce ## reproduce the AdaComp paper: SCALE=quick ENGINE=simulation SEEDS=1,2
adacomp-pages: reproduce-pages ## write its pages into docs/reproduction: SCALE=quick
adacomp-fig1: ## Fig. 1 of the paper: ASGD's accuracy against ingress
adacomp-fig3: ## Fig. 3: ASGD, Comp-ASGD and AdaComp; ONLY=asgd,adacomp-0.01 for some of its lines
adacomp-fig3-even: ## a variant of Fig. 3: the learning rate of the authors' published code
adacomp-fig3-wide: ## a variant of Fig. 3: this learning rate, and waiting times from 0 on
adacomp-fig3-per-tensor: ## a variant of Fig. 3: Comp-ASGD that selects per tensor
adacomp-selection: ## §III-B and §V-C: random selection, and c = 0.001 and 0.0001
adacomp-fig4: ## Fig. 4: one class of workers and three
adacomp-table2: ## Table II: workers that crash
$(ADACOMP:%=adacomp-%): adacomp-%: install
	$(MAKE) reproduce PAPER=adacomp PART=$*

DBW := $(foreach n,1 2 3 4 5 6 7 8 9 10,fig$(n)) ingress
.PHONY: dbw dbw-pages dbw-knee $(DBW:%=dbw-%)
dbw: ## reproduce the DBW paper: SCALE=cpu SEEDS=1,2; parts: dbw-fig1 to dbw-fig10, dbw-ingress
	$(MAKE) reproduce PAPER=dbw PART=all ENGINE=simulation
dbw-pages: ## write its pages into docs/reproduction
	$(MAKE) reproduce-pages PAPER=dbw
dbw-knee: install ## find the learning rates of the knee rule, by a sweep; Fig. 8's static lines read them
	$(MAKE) reproduce PAPER=dbw PART=knee ENGINE=simulation
	$(BIN)/python -m reproduction.papers.dbw $(or $(OUT),runs/dbw)/pages/$(or $(SCALE),cpu) $(or $(SCALE),cpu)
$(DBW:%=dbw-%): dbw-%: install
	$(MAKE) reproduce PAPER=dbw PART=$* ENGINE=simulation

GAP_AWARE := fig2 fig3 fig4 fig7 fig12 fig13 table2 table4 table5 corollary1
.PHONY: gap-aware gap-aware-pages $(GAP_AWARE:%=gap-aware-%)
gap-aware: ## reproduce the Gap-Aware paper: SCALE=cpu or SCALE=paper, COMMIT=1
	$(MAKE) reproduce PAPER=gap-aware PART=all ENGINE=simulation
gap-aware-pages: ## write its pages into docs/reproduction
	$(MAKE) reproduce-pages PAPER=gap-aware
gap-aware-fig2: ## Figs. 1, 2 and 5: all systems on Fashion-MNIST, by the number of workers; SCALE=cpu
gap-aware-fig3: ## Fig. 3: gamma-distributed execution times, without training
gap-aware-fig4: ## Fig. 4: the delay and the gap over training
gap-aware-fig7: ## Fig. 7: training with 16 workers
gap-aware-corollary1: ## Corollary 1: the rate 1/√(BK), on a function of known smoothness and noise
gap-aware-fig12: ## Fig. 12: speed-ups by the virtual clock, without training
gap-aware-fig13: ## Fig. 13: workers that differ
gap-aware-table2: ## Table 2: Adam, Adam-SA and Adam-GA on a language model; SCALE=cpu
gap-aware-table4: ## Table 4: ResNet-20 on CIFAR-10
gap-aware-table5: ## Table 5: WideResNet 16-4 on CIFAR-10; SCALE=paper
$(GAP_AWARE:%=gap-aware-%): gap-aware-%: install
	$(MAKE) reproduce PAPER=gap-aware PART=$* ENGINE=simulation

AKO := fig2 fig3 fig4 fig8 fig8-network fig9 fig10 fig11 fig12 fig13 fig13-network table1
.PHONY: ako ako-pages ako-fig8-wall $(AKO:%=ako-%)
ako: ## reproduce the Ako paper: SEEDS=1,2, COMMIT=1
	$(MAKE) reproduce PAPER=ako PART=all ENGINE=simulation
ako-pages: ## write its pages into docs/reproduction
	$(MAKE) reproduce-pages PAPER=ako
ako-fig2: ## Fig. 2: allocations of 64 machines to workers and servers
ako-fig3: ## Fig. 3: the best allocation by cluster, hardware and workload
ako-fig4: ## Fig. 4: co-located servers
ako-fig8: ## Fig. 8: MNIST on 2, 4 and 8 machines
ako-fig8-network: ## Fig. 8 with the paper's own network for MNIST, 8 machines
ako-fig8-wall: ## Fig. 8 in namespaces, under the wall clock, on shaped links
	$(MAKE) reproduce PAPER=ako PART=fig8-wall SCALE=wall ENGINE=namespaces
ako-fig9: ## Fig. 9: 16, 32 and 64 machines
ako-fig10: ## Fig. 10: statistical and hardware efficiency on 64 machines
ako-fig11: ## Fig. 11: the use of links and processors
ako-fig12: ## Fig. 12: the number of partitions
ako-fig13: ## Fig. 13: with and without accumulation
ako-fig13-network: ## Fig. 13 with the paper's own network for ImageNet, on CIFAR-10
ako-table1: ## Table 1: time to an accuracy
$(AKO:%=ako-%): ako-%: install
	$(MAKE) reproduce PAPER=ako PART=$* ENGINE=simulation

.PHONY: dashboards
dashboards: install ## generate the Grafana dashboards, and print how to open them
	$(BIN)/python -m dashboards
	@echo 'to open them:  docker compose -f compose/observability.yml up -d   and open http://127.0.0.1:3000'
	@echo 'with a run:    $(BIN)/testbed run $(SPEC) --metrics-port 9464'

# MLflow's server, to which tests export (97 MB). Its package wants an older pyarrow than constraints.txt has, which
# the server does not need: a folder that is added to the path of the environment, where its client is.
MLFLOW := build/mlflow/.installed
$(MLFLOW): $(VENV)/.installed
	rm -rf build/mlflow
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt --target build/mlflow \
		'aiohttp<4' 'flask<4' 'flask-cors<7' 'graphene<4' 'huey<4'
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --upgrade --no-deps --target build/mlflow \
		"mlflow==$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("mlflow-skinny"))')"
	@touch $@

# Some tests measure times, on a host that others may share: what fails beside other tests runs once more, alone.
# mypy keeps one processor busy, and pip the network.
test: install ## run the linters and the whole test suite
	$(MAKE) -j 2 lint $(MLFLOW)
	$(BIN)/pytest -n 3 --dist loadscope || { [ $$? = 1 ] && echo "these tests failed; each runs once more, alone:" && \
		$(BIN)/pytest -n 0 --last-failed --last-failed-no-failures none; }

# What an engineer runs every few minutes. A change that makes it longer than the limit moves tests out of it.
QUICK := $(addprefix tests/,algorithms checkpoints clock durations drawing engine experiment fastgrad faults learning messages metrics \
	planning programs roles runs telemetry training wire) $(wildcard tests/test_*.py) \
	$(patsubst %,tests/docs/test_%.py,accounted architecture named_tests profiles quick_tests targets yaml_blocks)
CHECK_SECONDS ?= 120
.PHONY: check quick
check: install ## run the linters and the tests that need no namespace, container, kernel or training run: under two minutes
	@timeout --foreground $(CHECK_SECONDS) $(MAKE) --no-print-directory lint quick || { status=$$?; [ $$status != 124 ] || \
		echo "make check: longer than $(CHECK_SECONDS) s; 'make quick QUICK_OPTIONS=--durations=20' shows what is slow" >&2; exit $$status; }

quick: install
	$(BIN)/pytest -q -n $$(($$(nproc) + 1)) -m 'not real and not exercises' --hypothesis-profile quick $(QUICK_OPTIONS) $(QUICK)

.PHONY: test-ray
test-ray: install ## run a sweep, and a spread run, on a real Ray cluster of three nodes, with kills; installs Ray (70 MB)
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[ray]'
	$(BIN)/pytest -n 0 tests/sweeps/test_cluster.py tests/ray_cluster

lint: install ## run ruff, mypy (strict) and the check of imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install ## format the code with ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: architecture
architecture: install ## draw docs/architecture.svg from the import contract and the imports
	$(BIN)/python -m website.architecture

.PHONY: profiles
profiles: install ## write the table of named links and devices, with their sources, into docs/links.md
	$(BIN)/python -m website.profiles

.PHONY: docs
docs: architecture profiles ## build the documentation's site in build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo 'open build/docs/index.html'

bench: install ## measure efficiency, set-up time and memory; writes bench.json
	$(BIN)/python -m bench

shards: install ## measure four servers and ten clusters against a star, 200 workers in namespaces
	$(BIN)/python -m bench.shards

.PHONY: bench-sweep
bench-sweep: install ## measure the throughput of 400 short simulations on one core, on all, and by Ray if installed
	$(BIN)/python -m bench.sweep

.PHONY: bench-processors
bench-processors: install ## measure simulations on one processor and on two: PROCESSORS=2 PAIRS=5
	$(BIN)/python -m bench.processors --processors $(or $(PROCESSORS),2) --pairs $(or $(PAIRS),5)

.PHONY: bench-fidelity
bench-fidelity: install ## run one experiment on the host as it is, and beside busy processes: does its verdict change?
	$(BIN)/python -m bench.fidelity

.PHONY: bench-rules
bench-rules: install ## measure what each asynchronous rule costs the server beside ASGD, 32 and 200 workers
	$(BIN)/python -m bench.rules

.PHONY: bench-backup-workers
bench-backup-workers: install ## measure what DBW costs the server per update beside a gradient, 16 and 200 workers
	$(BIN)/python -m bench.backup_workers

.PHONY: bench-peers
bench-peers: install ## the same work on Flower's simulation engine, in an environment of its own (1.7 GB)
	[ -x build/peers/bin/python ] || $(PYTHON) -m venv build/peers
	grep -E '^(numpy|torch)=' constraints.txt > build/peers/constraints.txt # of what computes; Flower has its own ranges for the rest
	build/peers/bin/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c build/peers/constraints.txt -e . 'flwr[simulation]==1.42.0'
	$(BIN)/python -m bench.peers build/peers/bin/python

RECORDS ?=
.PHONY: records
records: install ## measure the numbers of the pages anew, into docs/records: RECORDS="encodings agree"
	$(BIN)/python -m bench.records $(RECORDS)

.PHONY: scale
scale: install ## measure set-up time and memory with up to 2,000 devices; writes docs/scale.json and its table
	$(BIN)/python -m bench.scale --record docs/scale.json --page docs/scale.md $(if $(ROWS),--rows $(ROWS))

chaos: install ## strike 50 workers, then 8 peers, with random faults, and check every invariant of the ledgers: CHAOS=1-100
	$(BIN)/python -m bench.chaos --seeds $(CHAOS)
	$(BIN)/python -m bench.chaos --peers --seeds $(CHAOS)

.PHONY: fuzz
fuzz: install ## plan, simulate and emulate experiment files over every key of the schema: FUZZ="--plan 100 --simulate 10 --emulate 0"
	$(BIN)/python -m bench.fuzz.specs $(FUZZ)

.PHONY: fuzz-readers
fuzz-readers: install ## give mutated input to readers of files and messages, which must read or refuse it: INPUTS=1000000 TARGETS="captures wire"
	for target in $(TARGETS); do \
		nice -n 19 $(BIN)/python -m bench.fuzz $$target --inputs $(INPUTS) || exit; done

mixtures: install ## simulate random faults that overlap, emulate half of them, and compare to the bit: MIXTURES=1-2000
	$(BIN)/python -m bench.mixtures --seeds $(MIXTURES)

.PHONY: golden golden-write
golden: install ## simulate the experiments of bench/golden.jsonl, and compare their results to the bit: GOLDEN="--only star-"
	$(BIN)/python -m bench.golden $(GOLDEN)

golden-write: install ## write bench/golden.jsonl anew, after a change that alters results on purpose
	$(BIN)/python -m bench.golden --write

resumptions: install ## end emulations at random moments, resume them, and compare with the simulator: RESUMPTIONS=1-30
	$(BIN)/python -m bench.resumptions --seeds $(RESUMPTIONS)

programs: install ## run the examples of programs of users (Flower, torchrun, MPI, Hivemind), each in an environment of its own: EXAMPLES=flower
	PIP_ARGS='$(PIP_ARGS)' $(BIN)/python -m bench.programs run $(EXAMPLES)

chaos-programs: install ## strike an unmodified Flower with random faults: each run has to end, with agreeing ledgers: CHAOS_PROGRAMS=1-30
	PIP_ARGS='$(PIP_ARGS)' $(BIN)/python -m bench.programs chaos --seeds $(CHAOS_PROGRAMS)

kernels: install ## boot Debian's kernels in QEMU for the tests that need netem and cgroup v2: KERNELS=backports
	$(BIN)/python -m kernels test $(KERNELS)

links: install ## compare models of shared links with real TCP on shaped links
	$(BIN)/python -m bench.links

traffic: install ## measure the cost of capture and the sizes of encodings, and check the capture's counts
	$(BIN)/python -m bench.traffic

images: install ## build the Docker image: make images BASE=... IMAGE=...
	PIP_ARGS='$(PIP_ARGS)' $(BIN)/python -m images build $(if $(BASE),--base $(BASE)) $(if $(IMAGE),--tag $(IMAGE))

base-image: install ## make a base image without a registry, by debootstrap: make base-image MIRROR=...
	$(BIN)/python -m images base $(if $(MIRROR),--mirror $(MIRROR))

.PHONY: release
release: install ## build wheel, sdist, documentation and image of the commit into dist/, and try the wheel by itself
	PIP_ARGS='$(PIP_ARGS)' $(BIN)/python -m images.release

clean: ## remove what killed runs left on this host, and the virtual environment
	-[ -x $(BIN)/testbed ] && $(BIN)/testbed clean
	rm -rf $(VENV)
