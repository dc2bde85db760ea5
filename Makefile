# Two commands to begin with: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test dev check format clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/hymical demo

dev: $(READY)
	@$(BIN)/hymical dev

test: $(READY)
	$(BIN)/pytest -n auto $(ARGS)

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
	@echo "Installing into .venv (once) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
