"""The same ports in dictionaries: complete, and held to the same contracts as the real adapters."""
