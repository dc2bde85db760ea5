"""`python -m hymical` is `hymical`."""

from hymical.entrypoints.cli.main import main

main()
