"""The key under which sources of posts are told apart without being known."""

from typing import Protocol


class SourceKey(Protocol):
    async def read(self) -> bytes:
        """32 random bytes, made with the database and never changed, so the same in all processes."""
        ...
