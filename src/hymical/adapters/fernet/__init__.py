"""Encryption of secrets at rest, by the `cryptography` package."""
