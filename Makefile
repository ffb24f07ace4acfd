# sudo make emulate    installs what is missing, then runs; a second run installs nothing.
#
# Two environments, both made from Debian's Python (it has mininet): .venv for rfabric,
# .venv-ryu for the Ryu controller. TOPO, TRAFFIC, POLICY and SEED pass through:
#                     make simulate TOPO=rfabric,pods=4 TRAFFIC=grpo-64 POLICY=demand SEED=7
# compare takes several fabrics:               make compare TOPO="fat-tree rfabric"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):/usr/sbin:/sbin

VENV := .venv
RYU := .venv-ryu
RFABRIC := $(VENV)/bin/rfabric
INSIDE := $(VENV)/bin/python
ARGS = $(foreach t,$(TOPO),--topo '$(t)') $(foreach t,$(TRAFFIC),--traffic '$(t)') \
       $(foreach p,$(POLICY),--policy '$(p)') $(foreach s,$(SEED),--seed '$(s)')

# Under sudo, leave nothing in the tree that the user who called cannot remove.
ifdef SUDO_UID
export PYTHONDONTWRITEBYTECODE := 1
export PYTEST_ADDOPTS := -p no:cacheprovider
export HYPOTHESIS_STORAGE_DIRECTORY := $(VENV)/hypothesis-root
export RUFF_NO_CACHE := true
export MYPY_CACHE_DIR := $(VENV)/mypy-root
export COVERAGE_FILE := $(VENV)/coverage-root
endif
OWN = $(if $(SUDO_UID),find $(VENV) $(RYU) rfabric/simulate build *.egg-info -user root -exec \
      chown -h '$(SUDO_UID):$(SUDO_GID)' {} + 2>/dev/null || true,true)

.PHONY: help emulate simulate compare bench doctor selftest drill test check lint types coverage \
        mutants docs clean setup system

help: ## these lines
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s%s\n", $$1, $$2}' Makefile

emulate: setup ## replay one RL step with real packets on four fabrics (root)
	$(RFABRIC) emulate $(ARGS)

simulate: $(VENV)/.core ## run the same step in the flow-level simulator
	$(RFABRIC) simulate $(ARGS)

compare: setup ## compare fabrics side by side
	$(RFABRIC) compare $(ARGS)

UP_TO := 262144
bench: $(VENV)/.core ## measure how fast the simulator is: 6 min, 3 GB (UP_TO=65536: 4 min, 1 GB)
	$(RFABRIC) bench --up-to '$(UP_TO)'

doctor: setup ## say what this host can emulate
	$(RFABRIC) doctor

selftest: setup ## check that packets here take as long as theory says (root)
	$(RFABRIC) selftest

drill: setup ## inject faults into a live emulation: what is lost, how long recovery takes (root)
	$(RFABRIC) drill

# A file of tests to a process at a time, in the order of tests/conftest.py: pytest-xdist would put
# the files with most tests first, however long they take. Tests that emulate want the machine for
# themselves. One process more than processors: a fifth of the time is waiting.
SPREAD := -n $(shell echo $$(($$(nproc) + 1))) --maxprocesses 8 --dist loadfile \
          --no-loadscope-reorder

# Debian has Chromium as a package; elsewhere the page's tests in a browser are skipped.
CHROMIUM := $(shell . /etc/os-release && [ "$$ID" = debian ] && echo chromium:chromium)
test: NEEDS += valgrind:valgrind $(CHROMIUM)
test: ## run lint, types, all tests (as root: real packets too)
	$(MAKE) --no-print-directory -j2 NEEDS='$(NEEDS)' setup $(VENV)/.extras lint types
	failed=0; $(INSIDE) -m pytest -m 'not root or beside' $(SPREAD) || failed=1; \
	$(INSIDE) -m pytest -m 'root and not beside' \
	    $$(grep -rl --include='test_*.py' 'mark[.]root' tests) || failed=1; exit $$failed

check: $(VENV)/.core lint types ## for every day: lint, types, the quick tests (no root)
	$(INSIDE) -m pytest -q -m 'not root and not slow' $(SPREAD)

lint: $(VENV)/.stamp ## check rules and format with ruff
	$(INSIDE) -m ruff check . && $(INSIDE) -m ruff format --check .

types: $(VENV)/.stamp ## find names and attributes that do not exist with mypy (see pyproject.toml)
	$(INSIDE) -m mypy

coverage: $(VENV)/.core ## list lines that the tests without root never run (slow)
	$(INSIDE) -m pytest -q -m 'not root' --cov=rfabric --cov-report=term-missing:skip-covered

N := 30
mutants: $(VENV)/.core ## change N places of a room: do tests notice? ROOM=optics [N=30] [SEED=0]
	$(INSIDE) tests/mutants.py $(or $(ROOM),$(error say ROOM=optics, or another folder of rfabric/)) \
	    -n $(N) $(foreach s,$(SEED),--seed '$(s)')

docs: $(VENV)/.extras ## build lessons and reference as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(INSIDE) -m mkdocs build --strict
	@echo "open build/site/index.html; its search works where a server shows it:" \
	    "python3 -m http.server --bind 127.0.0.1 --directory build/site"

clean: ## remove what broken runs left behind, caches and build products; environments stay
	test ! -x $(RFABRIC) || $(RFABRIC) clean
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
	rm -rf $(VENV)/.core rfabric/simulate/*.so
	find . -path './.venv*' -prune -o -name __pycache__ -type d -exec rm -rf {} +

setup: $(VENV)/.core $(RYU)/.stamp ## install everything that the others need

# --- what the machine needs: program:package, the same names on Debian 12/13 and Ubuntu 22.04/24.04
NEEDS := mn:mininet ovs-vswitchd:openvswitch-switch ip:iproute2 ethtool:ethtool \
         ping:iputils-ping iperf3:iperf3 unshare:util-linux g++:g++
PYTHON = $(firstword $(shell for p in /usr/bin/python3 /usr/bin/python3.1[1-9]; do \
         "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p"; \
         done))

system:
	@python='$(PYTHON)'; packages=(); \
	for need in $(NEEDS); do \
	    command -v "$${need%%:*}" >/dev/null || packages+=("$${need##*:}"); \
	done; \
	if [ ! -x /usr/bin/python3 ]; then \
	    packages+=(python3 python3-venv); \
	elif [ -z "$$python" ]; then \
	    echo "rfabric needs Python 3.11 or newer; /usr/bin/python3 is $$(/usr/bin/python3 -V):" \
	        "python3.11 goes beside it" >&2; \
	    packages+=(python3.11 python3.11-venv); \
	elif ! "$$python" -c 'import ensurepip' 2>/dev/null; then \
	    packages+=("$$(basename "$$python")-venv"); \
	fi; \
	if [ "$${#packages[@]}" = 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing: $${packages[*]}" >&2; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get -o DPkg::Lock::Timeout=300 -qq update; \
	    apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends \
	        "$${packages[@]}"; \
	else \
	    echo "missing here: $${packages[*]}; as root: apt-get install" \
	        "$${packages[*]}" >&2; \
	    case " $${packages[*]} " in *-venv\ *) exit 1;; esac; \
	fi

# --- the two environments -----------------------------------------------------------------------
$(VENV)/.stamp: setup.cfg | system
	test -x $(VENV)/bin/python || $(PYTHON) -m venv --system-site-packages $(VENV)
	$(INSIDE) -m pip install --quiet --disable-pip-version-check -e '.[test,report,probe]'
	touch $@
	@$(OWN)

$(VENV)/.extras: $(VENV)/.stamp
	$(INSIDE) -m pip install --quiet --disable-pip-version-check \
	    -e '.[browser,docs,store,dask,ray,gnmi,ns3,forecast]'
	$(INSIDE) -m pip install --quiet --disable-pip-version-check --only-binary atheris \
	    -e '.[fuzz]' || echo 'atheris has no wheel for this machine: its test is skipped'
	touch $@
	@$(OWN)

# Ryu 4.34 (2020) builds with setuptools 67.6.1 and no newer one: pip >= 25.3 reads that from the
# build constraint, older ones from the constraint. It also imports a name that eventlet has
# dropped; a .pth line puts it back for ryu-manager too.
PTH := import warnings; warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated"); \
       import eventlet.wsgi; vars(eventlet.wsgi).setdefault("ALREADY_HANDLED", b"")
$(RYU)/.stamp: setup.cfg | system $(VENV)/.stamp
	test -x $(RYU)/bin/python || $(PYTHON) -m venv $(RYU)
	echo 'setuptools==67.6.1' > $(RYU)/constraint.txt
	PIP_CONSTRAINT=$(CURDIR)/$(RYU)/constraint.txt \
	PIP_BUILD_CONSTRAINT=$(CURDIR)/$(RYU)/constraint.txt \
	    $(RYU)/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 ryu==4.34
	$(RYU)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	site=$$($(RYU)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo '$(PTH)' > "$$site/rfabric-ryu.pth"
	$(RYU)/bin/python -c 'import ryu.cmd.manager'
	touch $@
	@$(OWN)

# --- the simulator's C++ core ---------------------------------------------------------------------
$(VENV)/.core: $(wildcard rfabric/simulate/*.cpp rfabric/simulate/build.py) $(VENV)/.stamp
	@if command -v g++ >/dev/null; then \
	    $(INSIDE) -m rfabric.simulate.build && touch $@ && $(OWN); \
	else echo 'no g++: the simulator runs its slower Python engine' >&2; fi
