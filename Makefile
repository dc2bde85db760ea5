# Two commands to begin with: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test dev bench bench-quick bench-compare chaos check format clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/hymical demo

# ARGS="--port 8011" for another port
dev: $(READY)
	@$(BIN)/hymical dev $(ARGS)

test: $(READY)
	$(BIN)/pytest -n auto --dist worksteal $(ARGS)

# two minutes of failures of every kind, and the count afterwards; ARGS="--seed 7 --seconds 60" chooses
chaos: $(READY)
	$(BIN)/python -m bench.chaos $(ARGS)

# what is measured beside its limits, about 40 minutes; ONLY="intake delivery" for a part, ARGS="--rounds 1" for less
bench: $(READY)
	$(BIN)/python -m bench $(ARGS)

# the same within three minutes
bench-quick: $(READY)
	$(BIN)/python -m bench --quick $(ARGS)

# this tree beside another revision, in turn; ONLY=cpu for a part, ARGS="--rounds 7 --full" for more
bench-compare: $(READY)
	$(BIN)/python -m bench.compare $(BASE) $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .data

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Hymical needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv, once; it takes a minute or two …"
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
