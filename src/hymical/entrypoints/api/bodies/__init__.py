"""Reads posted bodies into name-value pairs, one module per media type."""

from hymical.entrypoints.api.bodies.reader import read_pairs

__all__ = ["read_pairs"]
