# Every target that needs the environment makes it first. `make help` lists them.
PYTHON ?= python3
FUZZ_SECONDS ?= 60
BIN := .venv/bin
STAMP := .venv/.ready
DOCS_STAMP := .venv/.docs-ready
PACKAGES := privacy models server edge_client export simulation sotto
SOURCES := $(PACKAGES) tests benchmarks examples deploy

# Devices and commands start by the hundred: each would compile every module it loads anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev demo page docs test test-fast fuzz check format bench protos papers lock sbom wheel pin-images clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

# Every extra but `pitch`: pyworld has no wheels and wants a C compiler, which a fresh machine may lack.
dev: $(STAMP) ## Make .venv/ with every extra that has wheels

$(STAMP): pyproject.toml deploy/lock/dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sotto needs Python 3.11 or newer; run: make dev PYTHON=python3.11" >&2; exit 1; }
	@echo "Making .venv/ (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --no-input --no-deps --require-hashes -r deploy/lock/dev.txt
# What is left is torch, by its version: which build of it an index gives, and so its hash, differs.
	@$(BIN)/python -m pip install --quiet --no-input --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP) ## Train a keyboard on five devices of this machine and export it (a minute)
	@$(BIN)/python -m examples.keyboard.run

page: $(STAMP) ## Fetch what the keyboard's page runs models with (needs npm)
	@$(BIN)/sotto-serve fetch

docs: $(DOCS_STAMP) ## Build the site of the guides, with every setting and the Python door: build/site
	@$(BIN)/python -m deploy.docs

$(DOCS_STAMP): $(STAMP) deploy/lock/docs.txt
	@$(BIN)/python -m pip install --quiet --no-input --no-deps --require-hashes -r deploy/lock/docs.txt
	@touch $@

test: $(STAMP) ## Run every test but the slow reproductions
	$(BIN)/python -m pytest -m 'not papers'

test-fast: $(STAMP) ## Run the tests that are quick (2.5 minutes)
	$(BIN)/python -m pytest -m 'not papers and not slow'

papers: $(STAMP) ## Run the slow reproductions of the papers' figures
	$(BIN)/python -m pytest -m papers

fuzz: $(STAMP) ## Run every reader on made-up bytes, FUZZ_SECONDS=60 each
	@$(BIN)/python -m pip install --quiet --no-input -e '.[fuzz]'
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

check: $(STAMP) ## Check format, lint, types, imports, generated code, the house's limits, manifests and links
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports
	@$(BIN)/python -P protos/generate.py --check
	@$(BIN)/python -m benchmarks.house --check
	@$(BIN)/python -m deploy.kubernetes.check
	@$(BIN)/python -m deploy.docs.check

format: $(STAMP) ## Rewrite the sources in the house format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

protos: $(STAMP) ## Generate the wire code from protos/*.proto
	$(BIN)/python -P protos/generate.py

bench: $(STAMP) ## Run every benchmark in its short form
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; name=$${file#benchmarks/}; $(BIN)/python -m benchmarks.$${name%.py} --quick || exit 1; done

lock: $(STAMP) ## Write the lists with hashes anew (WHEELS=torch-*+cpu-*.whl adds CPU builds)
	$(BIN)/python -P deploy/lock/make_lists.py $(WHEELS)

wheel: $(STAMP) ## Build dist/sotto-*.whl, which has the same bytes each time
	@$(BIN)/python -P -m hatchling build --target wheel

sbom: $(STAMP) ## Write a CycloneDX bill of materials for each list, dist/sbom/*.cdx.json
	@mkdir -p dist/sbom
	@for list in lock/dev lock/server lock/helper lock/serve device/predict device/train; do \
		case $$list in *predict|*serve|*helper) torch=;; *) torch=deploy/lock/torch.txt;; esac; \
		cat deploy/$$list.txt $$torch | $(BIN)/python -P -W ignore -m cyclonedx_py requirements \
			--pyproject pyproject.toml --output-reproducible --of JSON --validate \
			-o dist/sbom/$${list#*/}.cdx.json - || exit 1; \
	done

pin-images: ## Write the digest of today's base image into the Containerfiles (needs podman)
	@sh deploy/lock/pin-images.sh

clean: ## Remove the environment, caches, the site and generated runs
	rm -rf build/site .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache runs demo demo.png
