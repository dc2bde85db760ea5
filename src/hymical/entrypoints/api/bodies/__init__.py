"""Reads posted bodies into name-value pairs, one module per media type."""

from hymical.entrypoints.api.bodies.reader import read_pairs
from hymical.entrypoints.api.bodies.text import Pairs

__all__ = ["Pairs", "read_pairs"]
