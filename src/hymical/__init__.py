"""Hymical takes posted HTML forms, stores them, and delivers each one as a signed webhook."""

__version__ = "0.1.0"
