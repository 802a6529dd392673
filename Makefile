# The list of things one does here; CI calls the same targets.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH := $(VENV)/.installed-bench
DOCS := $(VENV)/.installed-docs
# The CPU build of PyTorch the tests know; `make test-all` installs it, nothing else needs it.
TORCH ?= torch==2.13.0
# Two tests at a time, each with one BLAS thread: CI and the smallest laptops have two cores.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: help install demo test test-all test-floor test-newest sanitize lint bench-solvers bench-passes bench-scale bench-quality bench-ablation bench-cost bench-compress-scale bench-service bench-local-experts bench-members bench-latency bench-exports bench-first-minutes bench-paper bench-paper-seeds results figures check-figures fuzz docs screenshot clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): pyproject.toml CMakeLists.txt $(wildcard src/sparsebag/*/*.cpp src/sparsebag/*/*/*.h)
	@echo "Installing sparsebag and its test tools into $(VENV): about a minute."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@

$(BENCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,bench]"
	touch $@

install: $(STAMP)  ## Make .venv with sparsebag and its test tools

demo: $(STAMP)  ## Compress a 300-tree forest on generated data; print before and after, write a report
	$(BIN)/sparsebag demo

CODE := src tests benchmarks examples tools docs
lint: $(STAMP)  ## Style (ruff) and types (mypy, strict)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

test: lint  ## Everything CI runs: lint, types, the fast tests, doctests
	$(PYTEST) -m "not slow"

test-all: lint $(DOCS)  ## The slow tests too: PyTorch, examples, the documentation, a browser if there is one
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,models]" "$(TORCH)" "playwright>=1.48" "scikit-survival>=0.24"
	$(PYTEST)
	$(MAKE) sanitize

sanitize: $(STAMP)  ## The kernels' tests with address, undefined-behaviour and thread sanitizers (Linux, GCC)
	$(BIN)/python tests/sanitized.py address,undefined
	$(BIN)/python tests/sanitized.py thread

# uv is here for its --resolution. The table of models is that of new releases. Old releases warn of newer ones they are beside, and NumPy 1.26 of
# vector lanes it only fills up; before SciPy 1.16 SLSQP stops elsewhere.
OLD = -W default::DeprecationWarning -W default::PendingDeprecationWarning -W default::FutureWarning \
  -W "default:overflow encountered in divide:RuntimeWarning" -W "default:Mean of empty slice:RuntimeWarning" \
  -W "default:solver 'slsqp' stopped early:UserWarning"
test-floor:  ## The fast tests with the lowest direct versions that pyproject.toml declares
	$(call with-versions,.venv-floor,--resolution lowest-direct)
	$(subst $(BIN),.venv-floor/bin,$(PYTEST)) -m "not slow" -k "not the_table" $(OLD)

test-newest:  ## The fast tests with the newest releases, pre-releases too where there are wheels
	$(call with-versions,.venv-newest,--prerelease allow --upgrade --only-binary :all: --no-binary sparsebag)
	$(subst $(BIN),.venv-newest/bin,$(PYTEST)) -m "not slow" $(OLD)

define with-versions
test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --disable-pip-version-check uv
$(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2) -e ".[test]"
endef

bench-solvers: $(STAMP)  ## Every solver against SLSQP, the bandwidth bound and R's mixsqp
	$(BIN)/python -m benchmarks.solvers
	$(BIN)/python -m benchmarks.solvers --only large

bench-passes: $(STAMP)  ## The compiled products against NumPy's BLAS
	$(BIN)/python -m benchmarks.solvers --only passes

bench-scale: $(BENCH)  ## Growth with rows and members, Simplex SGD, evidence on disk, thousands of trees, Dask
	$(BIN)/python -m benchmarks.scale

bench-quality: $(BENCH)  ## Compressed trees of every size beside every baseline; expected against deployed
	$(BIN)/python -m benchmarks.quality --shard 1/2 & $(BIN)/python -m benchmarks.quality --shard 2/2; wait
	$(BIN)/python -m benchmarks.quality --summary

bench-ablation: $(BENCH)  ## The same budget without smoothing, refit, pruning, mixtures
	$(BIN)/python -m benchmarks.ablation

bench-cost: $(BENCH)  ## Processor time of compress over the fit's, seeds, class weights
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python -m benchmarks.cost --large

bench-compress-scale: $(BENCH)  ## Time and memory of compress by rows and trees, to a million rows; Ctrl-C; Dask
	$(BIN)/python -m benchmarks.compress_scale

bench-service: $(BENCH)  ## A FastAPI service under load beside ONNX Runtime, its model swapped meanwhile
	$(BIN)/python -m benchmarks.service

bench-local-experts: $(BENCH)  ## Weights that depend on the row, on experts made for them
	$(BIN)/python -m benchmarks.local_experts

bench-members: $(BENCH)  ## Simplex weights beside equal votes and random members: trees, linear models, networks
	$(BIN)/python -m benchmarks.members

bench-paper: $(BENCH)  ## The paper's tables and solver on its split, docs/paper.md (needs its data: SPARSEBAG_DATA)
	$(BIN)/python -m benchmarks.paper
	$(BIN)/python -m benchmarks.check_figures paper_experiments.json || $(BIN)/python -m benchmarks.paper_experiments
	$(BIN)/python -m benchmarks.paper_page

bench-paper-seeds: $(BENCH)  ## The same tables over ten splits, ten times as long
	$(BIN)/python -m benchmarks.paper --seeds 10

bench-latency: $(BENCH)  ## The compiled predictor beside scikit-learn, ONNX Runtime, treelite, XGBoost
	$(BIN)/python -m benchmarks.latency

bench-exports: $(BENCH)  ## Every export beside the model on the paper's data: pruned trees, calibrators, missing values
	$(BIN)/python -m benchmarks.exports

bench-first-minutes: $(BENCH)  ## README's commands and first example in a fresh clone
	$(BIN)/python -m benchmarks.first_minutes

# What README says comes first. Two processes at a time, each with one BLAS thread; what the clock times has the machine to itself.
results: $(BENCH) $(DOCS)  ## Every figure of README and docs, by this source: 65 minutes on two cores, goes on where it was stopped (needs SPARSEBAG_DATA)
	-OPENBLAS_NUM_THREADS=1 $(MAKE) bench-quality
	-$(MAKE) --keep-going $(addprefix kept-bench-,latency service scale)
	-OPENBLAS_NUM_THREADS=1 $(MAKE) --keep-going --jobs 2 bench-paper-seeds bench-paper $(addprefix kept-bench-,cost members compress-scale exports local-experts solvers)
	-$(MAKE) kept-fuzz
	-$(MAKE) screenshot kept-bench-first-minutes
	$(MAKE) check-figures

kept-%: $(BENCH)  # runs it unless its results are of this source
	$(BIN)/python -m benchmarks.check_figures $(subst -,_,$(*:bench-%=%)).txt || $(MAKE) $*

figures: $(BENCH)  ## README's figures and picture, docs/paper.md and its tables, from the kept results
	$(BIN)/python -m benchmarks.picture
	$(BIN)/python -m benchmarks.paper_page

check-figures: $(BENCH)  ## Fails where a figure, page or picture is of another source than the code
	$(BIN)/python -m benchmarks.check_figures

fuzz: $(STAMP)  ## A million mutated model files: no crash, no hang
	$(BIN)/python tests/fuzz_files.py

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,docs]"
	touch $@

docs: $(DOCS)  ## The documentation, gallery run, warnings are errors: docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

screenshot: $(DOCS) figures  ## README's picture, the demo and its report in docs/pictures, by a headless browser (needs a Chromium)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "playwright>=1.48"
	$(BIN)/python -m benchmarks.screenshot

clean:  ## Remove the environment and what runs left behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist sparsebag_report.html sparsebag_demo.sbag docs/_build docs/gallery
