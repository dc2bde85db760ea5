"""The HTTP API on Litestar."""
